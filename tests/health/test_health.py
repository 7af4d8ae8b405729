"""Hangs with real ranks, corrupted products, bounds, and the checkpoint before death."""

import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import isthmus.health
from isthmus._support.robust import outliers
from isthmus.accuracy.monitoring import alerts
from isthmus.health.bounds import Bound
from isthmus.health.checksum import Checksums, ratios
from isthmus.health.gasp import Gasp
from isthmus.health.reports import stragglers
from isthmus.health.status import Status, read
from tests.helpers import children


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
    rows, columns = ratios(a, b, c, added)
    assert max(rows.max(), columns.max()) < 1
    c[3, 4] += 64
    rows, columns = ratios(a, b, c, added)
    assert (rows > 1).nonzero().tolist() == [[3]]
    assert (columns > 1).nonzero().tolist() == [[4]]
    c[3, 4] = math.nan
    assert ratios(a, b, c, added)[0][3] == math.inf


def test_infinite_inputs_are_no_corruption():
    a = torch.tensor([[math.inf, 1.0], [1.0, 1.0]])
    assert max(ratios(a, torch.ones(2, 2), a @ torch.ones(2, 2))[0]) == 0


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


def test_bounds():
    bound = Bound(10.0, 0.5)
    assert not any(bound.is_exceeded(1 + 0.01 * (i % 5)) for i in range(30))
    assert bound.is_exceeded(5.0)
    assert not bound.is_exceeded(1.0)
    assert outliers({0: 1.0, 1: 1.01, 2: 0.99, 3: 2.0}, 6.0, 0.2) == {3: pytest.approx(1.99, abs=0.01)}


def test_the_slow_rank_is_the_one_that_waits_least():
    statuses = [Status(r, 4, "h", 1, 0.0, 9, 1.0, 0.1 if r == 2 else 0.6, "", 0.0, []) for r in range(4)]
    assert list(stragglers(statuses)) == [2]
    assert not stragglers(statuses[:2])


def train(steps, spoil=None, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with isthmus.health.watch(**options) as health:
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


def test_an_error_saves_what_can_be_loaded(tmp_path):
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="peer"), isthmus.health.watch(tmp_path, save=model.state_dict):
        raise ValueError("peer lost")
    torch.nn.Linear(2, 2).load_state_dict(torch.load(tmp_path / "last-0.pt"))
    assert (tmp_path / "last-0.pt").stat().st_mode & 0o777 == 0o640
    assert not list(tmp_path.glob("*.part"))


def test_nothing_is_saved_in_the_optimizers_step(tmp_path):
    gasp = Gasp(tmp_path, dict)
    gasp.is_stepping = True
    assert not gasp.save("error")
    assert not gasp.path.exists()


RANK = """
import os, sys, time
import torch, torch.distributed as dist
import isthmus.health
from isthmus._support.robust import outliers
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
with isthmus.health.watch(folder, timeout=4.0, save=lambda: {"step": torch.tensor(3)}):
    x = torch.ones(3)
    dist.all_reduce(x)
    if rank != 2:
        time.sleep(0.5)
        dist.all_reduce(x)
    open(f"{folder}/ready", "w").close()
    time.sleep(600)  # rank 2 does not arrive
"""


def test_a_hang_names_ranks_collective_and_line_and_sigterm_saves(tmp_path):
    program = tmp_path / "job.py"
    program.write_text(RANK)
    environment = os.environ | {
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": str(children.ROOT), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    ranks = [
        subprocess.Popen([sys.executable, str(program), str(rank), str(tmp_path)], env=environment)
        for rank in range(4)
    ]
    try:
        _wait((tmp_path / "ready").exists)
        _wait(lambda: len(read(tmp_path)) == 4 and all(s.collective for s in read(tmp_path) if s.rank != 2))
        ranks[2].send_signal(signal.SIGSTOP)
        _wait(lambda: list(tmp_path.glob("hang-*.txt")), 30)
        lines = next(tmp_path.glob("hang-*.txt")).read_text().splitlines()
        assert "in all_reduce #2 of [[3]] in group 0" in lines[0]
        assert lines[0].endswith("suspected: rank 2")
        assert len(lines) == 5
        assert lines[3].startswith("  rank 2 (")
        assert "(stopped or dead)" in lines[3]
        assert lines[3].endswith("job.py:14 in <module>")
        assert all("job.py:12 in <module>" in lines[i] for i in (1, 2, 4))
        ranks[0].terminate()  # it waits for a rank that does not answer
        assert ranks[0].wait(60) == -signal.SIGTERM
        assert torch.load(tmp_path / "last-0.pt")["step"] == 3
    finally:
        for each in ranks:
            each.kill()
            each.wait()


def _wait(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
