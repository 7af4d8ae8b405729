"""``isthmus run --nproc`` with real ranks: the rank named after a failure, kept files, and leftovers.

Each test starts torchrun's agent, which imports PyTorch: seconds.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isthmus.launch.ranks import Ranks
from tests.helpers.free_port import free_port

SCRIPT = str(Path(__file__).parents[1] / "scripts" / "launched.py")
LIMIT = 120.0  # seconds: a hang fails the test


def start(
    folder: Path, *arguments: str, is_temporary: bool = False, **environment: str
) -> subprocess.Popen[str]:
    """Start a job whose logs go to the folder; without ``--log-dir`` if it is that of temporary files."""
    options = [] if is_temporary else ["--log-dir", str(folder)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ISTHMUS_", "PYTHON"))}
    return subprocess.Popen(
        [sys.executable, "-m", "isthmus", "run", *options, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **kept,
            "ISTHMUS_HOST_MEMORY": "1GiB",
            "OMP_NUM_THREADS": "1",
            **({"TMPDIR": str(folder)} if is_temporary else {}),
            **environment,
        },
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    return process.returncode, out, err


def run(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    return finish(start(folder, *arguments, **environment))


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that write into the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = [str(each.readlink()) for each in (process / "fd").iterdir()]
            if any(name.startswith(str(folder)) for name in files):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("kill", 137, "rank 1 failed first: SIGKILL (process"),
        ("exit", 3, "rank 1 failed first: exit status 3 (process"),
        ("collectives-raise", 1, "rank 1 failed first: exit status 1 (process"),
        (
            "collectives-hang",
            1,
            "rank 1 did not reach a collective in time: it was executing other code when the other ranks",
        ),
    ],
)
def test_the_guilty_rank_is_named(tmp_path, how, status, words):
    is_temporary = how in ("kill", "exit")
    arguments = ("--nproc", "2", SCRIPT, how, str(tmp_path / "printed"))
    code, out, err = finish(start(tmp_path, *arguments, is_temporary=is_temporary))
    assert code == status and (": output in" in err) == (not is_temporary), err
    assert out == "out 0\n", "the terminal shows rank 0"
    said = err[err.index(f"isthmus: {words}") :]
    assert said.count("isthmus: ") == 1, "the last that is said"
    if how == "collectives-raise":
        assert "  | ValueError: my own mistake\n" in said
    elif how == "collectives-hang":
        line = 1 + Path(SCRIPT).read_text().splitlines().index("        time.sleep(1000)")
        assert (
            f'  | It was executing, innermost call first:\n  |   File "{SCRIPT}", line {line} in <module>\n'
            in said
        )
    else:
        assert "  | err 1\n" in said
    assert "most recent call first" not in err
    assert re.search(r"^    rank 0: (exit status 1|ended by the launcher)", said, re.M), said
    (folder,) = tmp_path.glob("isthmus-launched-*" if is_temporary else "*-launched")
    assert f"complete output: {folder}/rank-1.attempt-0.err" in said
    assert processes_of(tmp_path) == []


def test_output_is_kept_by_rank_and_attempt_and_all_of_it_can_be_shown(tmp_path, tmp_path_factory):
    printed = str(tmp_path_factory.mktemp("printed") / "file")
    former = os.umask(0o077)
    try:
        options = ("--nproc", "2", "--local-ranks-filter", "all", "--max-restarts", "1")
        code, out, err = run(tmp_path, *options, SCRIPT, "once", printed)
    finally:
        os.umask(former)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[rank 0] out 0"] * 2 + ["[rank 1] out 1"] * 2
    assert {"[rank 0] err 0", "[rank 1] err 1"} <= set(err.splitlines())
    assert "isthmus: rank 1 failed first: exit status 4" in err
    assert "isthmus: restarting all ranks; 1 restart left\n" in err and "(attempt 1): output in" in err
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o750
    names = {
        f"rank-{rank}.attempt-{attempt}.{end}"
        for rank in (0, 1)
        for attempt in (0, 1)
        for end in ("out", "err")
    }
    assert {path.name for path in folder.iterdir()} == {*names, "launcher.log"}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o640}
    assert (folder / "rank-1.attempt-1.out").read_text() == "out 1\n"


def test_an_interrupt_ends_all_ranks_and_their_children(tmp_path):
    process = start(tmp_path, "--nproc", "2", "--progress", SCRIPT, "child")
    assert process.stderr is not None
    seen = []
    while not seen or "iteration 3/1000 · loss 0.3333" not in seen[-1]:
        seen.append(process.stderr.readline())
        assert seen[-1], seen
    assert re.search(r"· \d+ ms · 2 of 2 ranks$", seen[-1]), seen
    assert any("sleep" in each for each in processes_of(tmp_path))
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (
        code == -signal.SIGINT
        and "isthmus: SIGINT: all ranks of this node have ended; their output is" in err
    )
    assert out == "out 0\n", "the progress line stands for the iteration lines"
    assert processes_of(tmp_path) == []


@pytest.mark.full
def test_ranks_end_with_a_launcher_that_is_killed(tmp_path):
    process = start(tmp_path, "--nproc", "2", "--local-ranks-filter", "all", SCRIPT, "sleep")
    assert process.stdout is not None
    assert {process.stdout.readline() for _ in range(2)} == {"[rank 0] out 0\n", "[rank 1] out 1\n"}
    process.kill()
    process.wait()
    end = time.monotonic() + LIMIT
    while processes_of(tmp_path) and time.monotonic() < end:
        time.sleep(0.1)
    assert processes_of(tmp_path) == []
    process.communicate()


@pytest.mark.full
def test_two_nodes(tmp_path):
    meeting = ("--nproc", "1", "--nnodes", "2", "--rdzv-endpoint", f"localhost:{free_port()}")
    nodes = [start(tmp_path, *meeting, SCRIPT, "kill") for _ in range(2)]
    (*_, first), (*_, second) = [finish(node) for node in nodes]
    said = first + second
    assert "isthmus: rank 0 of 2: output in" in said and "isthmus: rank 1 of 2: output in" in said
    assert said.count("isthmus: rank 1 failed first: SIGKILL") == 2, "one of the two has been told"
    assert said.count("; ending the ranks of this node\n") == 1
    assert sorted(node.returncode for node in nodes) == [1, 137]
    assert processes_of(tmp_path) == []


@pytest.mark.full
@pytest.mark.parametrize("by_hand", [True, False])
def test_two_nodes_restart_and_rendezvous_again(tmp_path, by_hand):
    """Rank 1 exits after a first collective without an error on rank 0; the launcher reports it to the node."""
    port = free_port()
    here: list[tuple[str, ...]] = [("--rdzv-endpoint", f"localhost:{port}")] * 2
    if by_hand:
        address = ("--master-addr", "localhost", "--master-port", str(port))
        here = [("--node-rank", str(number), *address) for number in range(2)]
    common = ("--nproc", "1", "--nnodes", "2", "--max-restarts", "1", SCRIPT, "again")
    nodes = [start(tmp_path, *each, *common) for each in here]
    (*_, first), (*_, second) = [finish(node) for node in nodes]
    said = first + second
    assert [node.returncode for node in nodes] == [0, 0], said
    assert said.count("isthmus: rank 1 failed first: exit status 4") == 2, "one of the two has been told"
    assert said.count("; restarting all ranks\n") == 1 and said.count("(attempt 1): output in") == 2
    assert [path.read_text() for path in tmp_path.glob("*/rank-0.attempt-1.out")] == ["out 0\nsum 2\n"]


def test_a_rendezvous_without_an_address_is_refused(tmp_path, monkeypatch):
    from isthmus.launch import elastic

    monkeypatch.setattr(elastic, "_RESOLUTION", 0.0)
    options = ["--nproc-per-node=1", *Ranks("1", "2", rdzv_endpoint="no.such.host.invalid:29500").torchrun()]
    with pytest.raises(
        RuntimeError, match=r"^the nodes cannot connect at no.such.host.invalid:29500: .* resolved"
    ):
        elastic.Agent([*options, SCRIPT], tmp_path, *[pytest.fail] * 4)


@pytest.mark.full
def test_as_many_ranks_as_devices(tmp_path):
    _, _, err = run(tmp_path, "--nproc", "auto", SCRIPT, "once", ISTHMUS_HOST_DEVICES="3")
    assert "isthmus: ranks 0 to 2 of 3: output in" in err
