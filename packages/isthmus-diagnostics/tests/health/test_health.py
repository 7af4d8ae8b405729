"""Hangs with real ranks, corrupted products, bounds, and the checkpoint before death."""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import isthmus_diagnostics.health
from isthmus_diagnostics.accuracy.monitoring import alerts
from isthmus_diagnostics.health import environment
from isthmus_diagnostics.health.bounds import Bound
from isthmus_diagnostics.health.checksum import Checksums, ratios
from isthmus_diagnostics.health.last_checkpoint import LastCheckpoint
from isthmus_diagnostics.health.reports import report_hang as hang_report
from isthmus_diagnostics.health.reports import stragglers, suspects
from isthmus_diagnostics.health.status import Status, read, write
from tests.helpers import children
from tests.helpers.health_jobs import CAUSES


class Flip(TorchDispatchMode):
    """Flips the top exponent bit of one element of each product."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result = op(*args, **(kwargs or {}))
        if op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            result.view(torch.int32)[1, 2] ^= 1 << 30
        return result


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_ratios_of_exact_and_wrong_products(dtype):
    torch.manual_seed(0)
    a, b, added = (torch.randn(size).to(dtype) for size in ((5, 300), (300, 7), (7,)))
    c = torch.addmm(added, a, b)
    turned = b.mT, a.mT, c.mT, added.expand(c.shape).mT
    assert max(ratios(a, b, c, added).max(), ratios(*turned).max()) < 1
    c[3, 4] += 64
    assert (ratios(a, b, c, added) > 1).nonzero().tolist() == [[3]]
    assert (ratios(*turned) > 1).nonzero().tolist() == [[4]]
    c[3, 4] = math.nan
    assert ratios(a, b, c, added)[3] == math.inf


def test_infinite_inputs_are_no_corruption():
    a = torch.tensor([[math.inf, 1.0], [1.0, 1.0]])
    assert max(ratios(a, torch.ones(2, 2), a @ torch.ones(2, 2))) == 0


def test_checksums_name_the_element():
    found = []
    linear = torch.nn.Linear(8, 8)
    with Flip(), Checksums(found.append):  # the inner mode sees the corrupted product
        linear(torch.randn(4, 8))
    assert [(each.shape, each.row, each.column, each.repeats) for each in found] == [
        ((1, 4, 8, 8), 1, 2, True)
    ]
    with Checksums(found.append) as checksums:
        linear(torch.randn(4, 8))
    assert (checksums.checked, len(found)) == (1, 1)


def test_meta_and_fake_products_are_not_checked(capsys):
    found = []
    with Checksums(found.append) as checksums:
        torch.ones(2, 2, device="meta") @ torch.ones(2, 2, device="meta")
        with FakeTensorMode():
            torch.ones(2, 2) @ torch.ones(2, 2)
    assert (checksums.checked, found, capsys.readouterr().err) == (0, [], "")


def test_an_error_of_a_check_is_printed_once_and_goes_no_further(monkeypatch, capsys):
    def fail(*args):
        raise torch.OutOfMemoryError("chip 0 is out of memory")

    monkeypatch.setattr("isthmus_diagnostics.health.checksum._worst_element", fail)
    with Checksums(None):
        for _ in range(3):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).sum() == 8
    assert capsys.readouterr().err == "isthmus: health: OutOfMemoryError: chip 0 is out of memory\n"


def test_bounds():
    bound = Bound(10.0, 0.5)
    assert not any(bound.is_exceeded(1 + 0.01 * (i % 5)) for i in range(30))
    assert bound.is_exceeded(5.0)
    assert not bound.is_exceeded(1.0)


def test_a_gradient_that_was_zero_and_a_value_that_recurs_are_usual():
    bound = Bound(20.0, 99.0)
    assert not any(bound.is_exceeded(value) for value in [0.0] * 40 + [1.0] + [0.0] * 9)
    bound = Bound(10.0, 1.5)
    found = [
        step for step in range(640) if bound.is_exceeded(20.0 if step % 16 == 15 else 1 + 0.01 * (step % 5))
    ]
    assert found == [15, 31, 47]
    assert bound.is_exceeded(100.0)


def test_the_slow_rank_is_the_one_that_waits_least():
    statuses = [Status(r, 4, "h", 1, 0.0, 9, 1.0, 0.1 if r == 2 else 0.6, "", 0.0, []) for r in range(4)]
    assert list(stragglers(statuses)) == [2]
    assert not stragglers(statuses[:2])


def test_a_rank_that_is_silent_is_no_straggler(tmp_path):
    health = isthmus_diagnostics.health.watch(tmp_path)
    for look in range(3):
        for rank in range(8):
            slow = rank in (1, 5, look)  # 1 is of this job, and silent
            taken = status(rank, time=100.0 + look * (rank not in (1, 5)))
            write(tmp_path, taken._replace(step_time=9.0 if slow else 1.0))
        health._look_for_stragglers(4)
    assert [each.name for each in health.alerts] == ["rank 2"]


def train(steps, spoil=None, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with isthmus_diagnostics.health.watch(**options) as health:
        for step in range(steps):
            loss = model(torch.randn(32, 8)).square().mean()
            (loss * (1000 if step == spoil else 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return health


def test_a_clean_run_has_no_alarm_and_a_spike_has_one(tmp_path):
    assert not train(60, folder=tmp_path / "clean", checksum_interval=5).alerts
    found = train(30, spoil=20, folder=tmp_path / "spike").alerts
    assert {alert.kind for alert in found} == {"loss", "gradient"}
    assert found[0].step == 20  # its weights are damaged from then on
    assert alerts(tmp_path / "spike") == sorted(found, key=lambda alert: (alert.step, alert.rank))


@pytest.mark.parametrize("fused", [False, True])
def test_steps_that_a_gradient_scaler_skips_are_not_judged(tmp_path, fused):
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with isthmus_diagnostics.health.watch(tmp_path) as health:
        for _ in range(20):
            scaler.scale(model(torch.full((4, 8), 1e3)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert not health.alerts
    assert 0 < health.step == optimizer.state[model.weight]["step"] < 20


def test_losses_of_different_lines_do_not_mix(tmp_path):
    one, two = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizers = [torch.optim.SGD([each], lr=1e-6) for each in (one, two)]
    with isthmus_diagnostics.health.watch(tmp_path) as health:
        for step in range(90):
            if step % 6:
                one.sum().backward()
            else:
                (two * 100).sum().backward()
            optimizers[step % 6 == 0].step()
    assert not health.alerts


def test_of_a_closure_the_first_loss_of_a_step_is_judged(tmp_path):
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.LBFGS([parameter], lr=1e-9)
    with isthmus_diagnostics.health.watch(tmp_path) as health:
        for step in range(30):
            calls = []

            def closure(step=step, calls=calls):
                calls.append(step)
                optimizer.zero_grad()
                scale = 1000.0 if len(calls) > 1 or step == 20 else 1.0
                (loss := parameter.sum() * scale).backward()
                return loss

            optimizer.step(closure)
    assert {(each.step, each.kind) for each in health.alerts} >= {(20, "loss")}
    assert {each.step for each in health.alerts} == {20}


def test_a_restart_that_fails_early_keeps_the_checkpoint(tmp_path):
    for failure in ("first", "again"):
        with (
            contextlib.suppress(ValueError),
            isthmus_diagnostics.health.watch(tmp_path, save=lambda text=failure: text),
        ):
            raise ValueError
    with contextlib.suppress(ValueError), isthmus_diagnostics.health.watch(tmp_path):
        raise ValueError
    found = {each.name: torch.load(each) for each in tmp_path.glob("last-*")}
    assert found == {"last-0.pt": "first", "last-0.no-step.pt": "again"}


def test_an_error_saves_what_can_be_loaded(tmp_path):
    model = torch.nn.Linear(2, 2)
    with (
        pytest.raises(ValueError, match="peer"),
        isthmus_diagnostics.health.watch(tmp_path, save=model.state_dict),
    ):
        raise ValueError("peer lost")
    torch.nn.Linear(2, 2).load_state_dict(torch.load(tmp_path / "last-0.pt"))
    assert (tmp_path / "last-0.pt").stat().st_mode & 0o777 == 0o640
    assert not list(tmp_path.glob("*.part"))


def test_sigterm_ends_the_process_although_saving_fails(tmp_path, monkeypatch):
    def fail():
        raise RuntimeError("enforce fail at inline_container.cc")

    monkeypatch.setattr("isthmus_diagnostics.health.last_checkpoint._end", lambda: ended.append(True))
    ended = []
    last = LastCheckpoint(tmp_path, fail)
    last._asked = 1e-9
    last.check()
    last.end_if_asked()
    assert ended == [True, True]
    assert not list(tmp_path.iterdir())


def test_a_forked_worker_that_is_ended_does_not_end_the_job(tmp_path):
    program = f"""
        import multiprocessing, os, signal, sys, time, isthmus_diagnostics.health
        from isthmus_diagnostics.health import session
        session._PERIOD = 0.01
        with isthmus_diagnostics.health.watch({str(tmp_path)!r}) as health:
            workers = [multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,)) for _ in range(9)]
            for worker in workers:
                worker.start()
                worker.terminate()
                worker.join()
            print([worker.exitcode for worker in workers])
            time.sleep(0.1)
            assert health._last_checkpoint._asked == 0 and health._last_checkpoint._handles()
            assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
            while not os.path.exists({str(tmp_path / "status-0.json")!r}):
                time.sleep(0.01)
            if not os.fork():
                health.stop()
                os._exit(health._last_checkpoint.save("error"))
            assert os.wait()[1] == 0
            assert os.path.exists({str(tmp_path / "status-0.json")!r})
    """
    assert children.output(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == f"{[-signal.SIGTERM] * 9}"


@pytest.mark.parametrize(
    ("claim", "ranks", "expected"),
    [
        ("", {}, True),
        ("", {"RANK": "1", "LOCAL_RANK": "1"}, True),
        ("1 - -", {}, False),  # a subprocess
        ("1 - -", {"RANK": "0", "LOCAL_RANK": "0"}, True),  # a rank of a launcher that is watched
        (
            "1 0 -",
            {"RANK": "0", "LOCAL_RANK": "0"},
            True,
        ),  # the environment has the number of the node as rank
        ("1 0 0", {"RANK": "0", "LOCAL_RANK": "0"}, False),  # a worker of a rank
        ("1 0 0", {"RANK": "1", "LOCAL_RANK": "1"}, False),  # a rank of another job, which a rank has started
        ("PID 0 0", {"RANK": "0", "LOCAL_RANK": "0"}, True),  # the same process after exec
    ],
)
def test_descendants_of_a_rank_are_not_watched(claim, ranks, expected, monkeypatch):
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ISTHMUS_HEALTH_CLAIM", claim.replace("PID", str(os.getpid())))
    for name, value in ranks.items():
        monkeypatch.setenv(name, value)
    assert environment._claim() == expected
    if expected:
        own = [str(os.getpid()), ranks.get("RANK", "-"), ranks.get("LOCAL_RANK", "-")]
        assert os.environ["ISTHMUS_HEALTH_CLAIM"].split() == own


def test_a_launcher_is_not_watched(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("sys.orig_argv", ["python", "/usr/bin/torchrun", "--nproc-per-node", "2", "train.py"])
    assert not environment._claim()


def test_what_is_no_status_is_left_out(tmp_path):
    write(tmp_path, status(1))
    (tmp_path / "status-03.json").write_text((tmp_path / "status-1.json").read_text())
    for name, text in {"3": '{"rank": 3', "4": "[]", "x": "{}", "5": '{"rank": 5, "ranks": "8"}'}.items():
        (tmp_path / f"status-{name}.json").write_text(text)
    (tmp_path / "status-6.json").write_text(json.dumps({**status(6)._asdict(), "stack": [3]}))
    (tmp_path / "status-7.json").write_text(json.dumps({**status(7)._asdict(), "more": 1}))
    assert read(tmp_path) == [status(1), status(7)]


def test_errors_of_the_watch_are_printed_once_and_do_not_end_it(tmp_path, monkeypatch, capsys):
    def fail(*args):
        calls.append(args)
        raise KeyError("entries")

    calls = []
    monkeypatch.setattr("isthmus_diagnostics.health.session._PERIOD", 0.01)
    monkeypatch.setattr("isthmus_diagnostics.health.status.take", fail)
    with isthmus_diagnostics.health.watch(tmp_path):
        wait(lambda: len(calls) > 2)
    assert capsys.readouterr().err.count("health: KeyError: 'entries'") == 1


def test_nothing_is_saved_in_the_optimizers_step(tmp_path):
    last = LastCheckpoint(tmp_path, dict)
    last.is_stepping = True
    assert not last.save("error")
    assert not last.path.exists()


def test_sigterm_between_the_steps_of_two_optimizers_saves_after_both(tmp_path):
    program = f"""
        import os, signal, torch, isthmus_diagnostics.health
        a, b = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
        one, two = torch.optim.SGD([a], lr=1.0), torch.optim.SGD([b], lr=1.0)
        with isthmus_diagnostics.health.watch({str(tmp_path)!r}, save=lambda: [a.detach(), b.detach()]):
            for step in range(9):
                (a + b).backward()
                one.step()
                if step == 3:
                    os.kill(os.getpid(), signal.SIGTERM)
                two.step()
                one.zero_grad(), two.zero_grad()
    """
    done = children.run(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert torch.load(tmp_path / "last-0.pt") == [-4.0, -4.0]


def test_repeated_alerts_are_counted(tmp_path):
    health = isthmus_diagnostics.health.watch(tmp_path)
    health.folder.mkdir(exist_ok=True)
    for step in (*range(20), 200):
        health._report_alert(step, "nan", "loss", "loss is nan")
    assert [each.step for each in health.alerts] == [0, 1, 3, 7, 15, 200]
    assert health.alerts[2].text == "loss is nan (alert 4 of this kind)"


def status(rank, collective="", time=100.0, ranks=4):
    return Status(rank, ranks, "h", 1, time, 9, 1.0, 0.1, collective, 95.0, [])


@pytest.mark.parametrize(
    ("others", "silent", "expected"),
    [
        ([status(1), status(2, "all_reduce #3 of [[3]] in group 0")], set(), [3]),  # no status of 3
        ([status(r, "all_reduce #3 of [[3]] in group 0") for r in (1, 2, 3)], set(), []),
        (
            [status(r, f"{'barrier' if r == 2 else 'all_reduce'} #3 of [[3]] in group 0") for r in (1, 2, 3)],
            set(),
            [2],
        ),
        ([status(1, "send #1 of [[3]] in group 7"), status(2), status(3)], {3}, [3]),
    ],
    ids=["ended", "all in it", "another collective", "silent"],
)
def test_suspects(others, silent, expected):
    own = status(0, "all_reduce #3 of [[3]] in group 0")
    assert suspects(own, [own, *others], silent) == expected


@pytest.mark.parametrize("stops", [[], [2]])
def test_clocks_of_hosts_may_differ(tmp_path, stops, monkeypatch):
    collective = "all_reduce #3 of [[3]] in group 0"
    behind = {0: 100.0, 1: 95.0, 2: 100.0, 3: 3000.0}  # times by the clock of its host
    ranks = [status(rank, "" if rank == 3 else collective, time=time) for rank, time in behind.items()]

    def sleep(seconds):
        for each in ranks:
            write(tmp_path, each._replace(time=each.time + seconds * (each.rank not in stops)))

    sleep(0)
    monkeypatch.setattr("time.sleep", sleep)
    lines = hang_report(tmp_path, ranks[0]).splitlines()
    assert lines[0].endswith("suspected: rank 2" if stops else "suspected: rank 3")
    assert ["no report for 3 s" in line for line in lines[1:5]] == [rank in stops for rank in range(4)]


def test_no_hang_is_reported_if_the_collective_ends(tmp_path, monkeypatch):
    own = status(0, "all_reduce #3 of [[3]] in group 0", ranks=1)
    monkeypatch.setattr("time.sleep", lambda seconds: write(tmp_path, own._replace(time=103.0, since=102.0)))
    assert not hang_report(tmp_path, own)
    assert not list(tmp_path.glob("hang-*"))


def start(folder, *cases):
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "ISTHMUS_HEALTH_DIR": str(folder)}
    environment |= {"ISTHMUS_HEALTH_TIMEOUT": "4"}
    return [
        children.start_module("tests.helpers.health_jobs", str(folder), *cases, RANK=str(rank), **environment)
        for rank in range(4)
    ]


@pytest.mark.full
def test_real_ranks_a_slow_one_a_stopped_one_and_sigterm_in_a_collective(tmp_path):
    ranks = start(tmp_path, "slow", "stop")
    try:
        wait(lambda: list(tmp_path.glob("alerts-0.jsonl")))
        assert {(a.kind, a.name) for a in alerts(tmp_path)} == {("straggler", "rank 1")}
        (tmp_path / "go-slow").touch()
        lines = hang(tmp_path, "*")
        assert re.search(r"in all_reduce #\d+ of \[\[3\]\] in group 0", lines[0])
        assert lines[0].endswith("suspected: rank 3")
        assert "(stopped), last: step " in lines[4]
        assert all(re.search(r"health_jobs\.py:\d+ in main$", line) for line in lines[1:])
        ranks[0].send_signal(signal.SIGTERM)  # it waits for a rank that does not answer
        assert ranks[0].wait(120) == -signal.SIGTERM
        assert torch.load(tmp_path / "last-0.pt")["step"] == read(tmp_path)[1].step
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", "chip"])
def test_through_the_launcher(tmp_path, device):
    """One rank sleeps, computes without end, is stopped, is in another collective; in the last case one is killed."""
    folder = tmp_path / "health"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ISTHMUS_")},
        "ISTHMUS_HEALTH_TIMEOUT": "4", "OMP_NUM_THREADS": "1", "ISTHMUS_HOST_MEMORY": "256MiB",
        "TMPDIR": str(tmp_path),
    }  # fmt: skip
    # The chip's own collectives fail at once if ranks are in different ones.
    cases = ["sleep", "loop", "hold", "stop", *(["other"] * (device == "cpu"))]
    command = [sys.executable, "-m", "isthmus", "run", "--nproc", "4", "--health", "--health-dir", folder]
    job = children.ROOT / "tests" / "helpers" / "health_jobs.py"
    launcher = subprocess.Popen(
        [*command, *(["--device", "cpu"] * (device == "cpu")), job, folder, *cases],
        env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    processes = []
    try:
        for step, case in enumerate(cases, 1):
            cause, lines = CAUSES[case], hang(folder, step)
            assert re.match(rf"step {step}: rank \d has been in all_(reduce|gather) #", lines[0]), lines
            assert lines[0].endswith(f"suspected: rank {cause}"), lines
            assert re.search(rf"health_jobs\.py:\d+ in (main|{case})$", lines[1 + cause]), lines
            assert ("(stopped)" in lines[1 + cause]) == (case == "stop"), lines
            assert ("alive, but does not release" in lines[1 + cause]) == (case == "hold"), lines
            processes = [each.process for each in read(folder)]
            if case == cases[-1]:
                os.kill(processes[3], signal.SIGKILL)
            elif case == "stop":
                os.kill(processes[cause], signal.SIGCONT)
            else:
                (folder / f"go-{case}").touch()
        _, error = launcher.communicate(timeout=120)
        assert launcher.returncode == 128 + signal.SIGKILL, error
        assert {each.name for each in folder.glob("last-*")} == {f"last-{rank}.pt" for rank in range(3)}
        assert torch.load(folder / "last-1.pt")["step"] == len(cases)
    finally:
        launcher.kill()
        launcher.communicate()
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def hang(folder, step):
    """Wait for the report of a hang; return its lines."""
    wait(lambda: list(folder.glob(f"hang-step-{step}.txt")))
    return next(folder.glob(f"hang-step-{step}.txt")).read_text().splitlines()


def wait(condition):
    for _ in range(2400):  # two minutes, without those in which this process is stopped
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("timed out")
