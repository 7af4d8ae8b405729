"""Live debugging of whole jobs: ISTHMUS_DEBUG, exit codes, `isthmus debug`, `isthmus replay`, `isthmus bisect`."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.helpers.children import run, start_module
from tests.helpers.debug_jobs import ISTHMUS, KERNELS, TRAINING, WRONG_LIBRARY, isthmus
from tests.helpers.debug_jobs import bare as bare  # noqa: PLC0414 - a fixture
from tests.helpers.debug_jobs import job as job  # noqa: PLC0414 - a fixture


@pytest.mark.full
def test_a_wrong_kernel_is_named_and_the_job_fails(tmp_path: Path, job: dict[str, str]) -> None:
    done = isthmus(
        "run", "train.py", cwd=tmp_path, ISTHMUS_DEBUG="compare:*,overflow:*,capture:aten::silu", **job
    )
    assert done.returncode == 3 and done.stdout.count("loss:") == 2
    assert "compare: aten::silu (float32[6, 6]) at train.py:7: output 0[5, 5] is 0.5" in done.stderr
    assert "2 failed (aten::silu 2)" in done.stderr and "overflow: " in done.stderr
    rows = [
        json.loads(line) for line in next((tmp_path / "debug").glob("compare-*")).read_text().splitlines()
    ]
    assert {row["operator"] for row in rows if row["verdict"] == "fail"} == {"aten::silu"}
    again = isthmus("replay", "debug/capture", "--device", "cpu", "--compare", cwd=tmp_path)
    assert again.returncode == 0 and "2 calls: 0 wrong" in again.stdout  # the CPU's kernel is right
    assert again.stdout.count("right, and differs from the captured result") == 2
    again = isthmus("replay", "debug/capture", "--times", "2", cwd=tmp_path, **job)
    assert again.returncode == 0 and "bit-equal" in again.stdout  # still as wrong


@pytest.mark.full
def test_a_kernel_that_makes_nan_is_named(tmp_path: Path, job: dict[str, str]) -> None:
    Path(job["ISTHMUS_LIBRARIES"]).write_text(WRONG_LIBRARY.replace("VALUE", "np.nan"))
    done = isthmus("run", "train.py", cwd=tmp_path, ISTHMUS_DEBUG="overflow:*", **job)
    assert done.returncode == 3
    assert "overflow: first producer: aten::silu at train.py:7: 1 NaN of 36 elements" in done.stderr


@pytest.mark.full
def test_a_right_job_ends_as_it_would(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    changes = {"ISTHMUS_DEBUG": "compare:*", "ISTHMUS_DEBUG_FOLDER": str(tmp_path / "debug")}
    done = isthmus("run", "train.py", cwd=tmp_path, **changes)
    assert done.returncode == 0, done.stderr
    assert "0 failed" in done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("compare", "'compare' is not tool:pattern"),
        ("compare:nosuch", "nosuch: matches no operator with a kernel on the chip"),
        ("look:*", "unknown tool 'look'; expected one of compare, capture"),
        ("fallback:@/nowhere", "/nowhere: cannot be read"),
    ],
)
def test_a_wrong_request_ends_in_one_line(text: str, message: str) -> None:
    done = run("import torch", ISTHMUS_DEBUG=text)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and message in done.stderr


def test_replay_refuses_in_one_line(tmp_path: Path) -> None:
    def refused(*options: str) -> tuple[int | None, str]:
        child = start_module("isthmus", "replay", str(tmp_path), *options)
        _, error = child.communicate()
        assert len(error.splitlines()) == 1
        return child.returncode, error

    assert refused()[0] == 1
    status, error = refused("--device", "cuda")
    assert status == 2 and "give chip or cpu" in error
    status, error = refused("--driver", "nosuch")
    assert status == 2 and "--driver nosuch" in error


# ---- on a chip that has few kernels and no fallback

WATCHED = """
import json, tempfile, torch
from pathlib import Path
from isthmus_diagnostics import debug
from isthmus_diagnostics.debug import called_operators

value = torch.full((4, 6), 3e38).to("chip").t()[::2]
with debug.overflow("*") as overflow, debug.compare("*") as compare, debug.time("*"):
    torch.nn.functional.silu(value)
print(overflow.probe.findings.rows[0]["text"])
print(compare.probe.findings.rows[0]["text"])
with tempfile.TemporaryDirectory() as folder:
    called_operators.write(Path(folder))
    print(json.loads(next(Path(folder).iterdir()).read_text())["aten::silu"]["routes"])
"""


@pytest.mark.full
def test_the_tools_need_no_kernels_of_the_chip(tmp_path: Path, bare: Path) -> None:
    done = run(WATCHED, ISTHMUS_DRIVER=str(bare), ISTHMUS_DEBUG_FOLDER=str(tmp_path / "debug"))
    overflow, compare, routes = done.stdout.splitlines()
    assert overflow.startswith("first producer: aten::silu") and "12 infinite of 12 elements" in overflow
    assert "strides [2, 6] 3e+38..3e+38" in overflow
    assert "NaN or infinity" in compare
    assert routes == "['decomposition', 'fallback']"


ACTIVATION = """
import torch

value = torch.nn.functional.silu(torch.arange(1, 7, dtype=torch.float32, device="cuda"))
print("loss:", value.cpu().sum().item())
"""


@pytest.mark.full
def test_a_wrong_kernel_is_found_and_its_repair_is_seen(tmp_path: Path, bare: Path) -> None:
    (tmp_path / "train.py").write_text(ACTIVATION)
    driver = ("--driver", str(bare))
    for route in ("decomposition", "cpu"):
        done = isthmus("bisect", *driver, "--reference-route", route, "train.py", cwd=tmp_path)
        assert done.returncode == 3, done.stderr
        last = done.stdout.splitlines()[-1]
        assert last.endswith(f"ISTHMUS_DEBUG='compare:aten::silu' isthmus run --driver {bare} train.py")
    capturing = {"ISTHMUS_DEBUG": "capture:aten::silu", "ISTHMUS_DEBUG_FOLDER": str(tmp_path / "debug")}
    isthmus("run", *driver, "train.py", cwd=tmp_path, **capturing)
    replay = ("replay", "debug/capture", *driver)
    done = isthmus(*replay, "--compare", cwd=tmp_path)
    assert done.returncode == 3 and "WRONG aten::silu" in done.stdout
    bare.with_name("operators.py").write_text(KERNELS.replace("FACTOR", "1"))
    for options in ((), ("--compare",)):
        done = isthmus(*replay, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "right, and differs from the captured result" in done.stdout


# ---- from outside

LOOP = """
import time, torch
value = torch.ones(8, 8).cuda()
print("started", flush=True)
end = time.monotonic() + 300
while time.monotonic() < end:
    value @ value
"""


def test_tools_are_switched_from_outside(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    changes = {"XDG_RUNTIME_DIR": str(runtime), "ISTHMUS_DEBUG_FOLDER": str(tmp_path / "debug")}
    command = [ISTHMUS, "run", "--quiet", "loop.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, **changes}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "started\n"

            def ask(*words: str) -> str:
                done = isthmus("debug", *words, cwd=tmp_path, **changes)
                assert done.returncode == 0, done.stderr
                return done.stdout.strip()

            pid = str(process.pid)
            assert pid in ask() and "loop.py" in ask()
            assert ask(pid) == "all tools are off"
            assert ask(pid, "compare", "aten::mm").startswith("compare aten::mm: on for")
            assert ask(pid, "time", "aten::mm").startswith("time aten::mm: on for")
            time.sleep(0.5)
            assert "compare aten::mm" in ask(pid, "status")
            assert "0 failed" in ask(pid, "off")
            assert ask(pid) == "all tools are off"
            done = isthmus("debug", pid, "look", cwd=tmp_path, **changes)
            assert done.returncode == 1 and "unknown tool 'look'" in done.stderr
            assert (runtime / "isthmus").stat().st_mode & 0o777 == 0o700
        finally:
            process.kill()
    done = isthmus("debug", pid, "status", cwd=tmp_path, **changes)
    assert done.returncode == 1 and f"process {pid} cannot be debugged" in done.stderr


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    """Nor are names that another user has taken; without any other, the command says what to set."""
    from isthmus_diagnostics.debug import control

    place, first = tmp_path / "isthmus", tmp_path / f"isthmus-{os.geteuid()}"
    for each in (place, first):
        each.mkdir()
        each.chmod(0o777)
    trap = {"pid": os.getpid(), "rank": "", "command": "trap", "started": control._start_time(os.getpid())}
    for each in (place, first):
        (each / f"{os.getpid()}.json").write_text(json.dumps(trap))
    changes = {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = isthmus("debug", cwd=tmp_path, **changes)
    assert done.returncode == 0 and "trap" not in done.stdout, done.stderr
    assert (tmp_path / f"{first.name}-1").stat().st_mode & 0o777 == 0o700
    (tmp_path / f"{first.name}-1").rmdir()
    for number in range(1, 100):
        (tmp_path / f"{first.name}-{number}").touch()
    done = isthmus("debug", cwd=tmp_path, **changes)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert (
        "not a folder that you own with mode 0700; set XDG_RUNTIME_DIR to a folder that only" in done.stderr
    )
