"""A run ends, keeps its results and leaves no process, whatever a kernel, a file or a signal does."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus.conformance import processes
from isthmus.conformance.results import CaseResult
from tests.helpers.conformance_jobs import check_refused, conform
from tests.helpers.conformance_libraries import write_library

_MUL = """
import ctypes, os, time


@library.operator("aten::mul.Tensor", dtypes=("float32",), strided=True)
def mul(x, y, out):
    {body}
    out[...] = x * y
"""
_FORKS_AND_DIES = """if out.size == 0:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        os.kill(os.getpid(), 35)"""


def test_bad_kernels_and_files_lose_no_other_result(tmp_path: Path, golden: Path) -> None:
    data = tmp_path / "golden"
    shutil.copytree(golden, data)
    with (data / "aten.cat.json.xz").open("a") as file:
        file.write(" ")
    library = write_library(tmp_path, "forks", _MUL.format(body=_FORKS_AND_DIES))
    start = time.monotonic()
    options = ("--golden", data, "--library", library, "--operators", "mul.Tensor,cat", "--output", tmp_path)
    done = conform("run", "--driver", "host", *options, "--library", _copier(tmp_path))
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - start < 25  # less than the child of the kernel lives, which holds the pipe
    rows = json.loads((tmp_path / "report.json").read_text())["results"]
    judged = {(row["operator"], row["status"]): row["message"] for row in rows if row["library"] == "forks"}
    assert ("aten::mul.Tensor", "passed") in judged
    assert judged["aten::mul.Tensor", "crashed"] == "the process was killed by signal 35"
    (broken,) = [row["message"] for row in rows if row["operator"] == "aten::cat" and not row["library"]]
    assert "modified or truncated" in broken and f"conform generate --output {data}" in broken


def _copier(folder: Path) -> Path:
    """A second library, which claims the operator whose file is broken."""
    text = _MUL.format(body="").replace("aten::mul.Tensor", "aten::cat").replace("x, y,", "x, dim,")
    return write_library(folder, "cat", text)


def test_a_library_given_twice_and_a_file_as_output_are_refused_at_once(tmp_path: Path, golden: Path) -> None:
    library = write_library(tmp_path, "twice", _MUL.format(body=""))
    options: tuple[object, ...] = ("run", "--driver", "host", "--operators", "mul.Tensor", "--golden", golden)
    options += ("--library", library)
    twice = conform(*options, "--library", library)
    check_refused(twice, "isthmus: two libraries have the name twice; give each its own\n")
    check_refused(conform(*options, "--output", library), "name a folder")


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["process", "group"])
def test_an_interrupted_run_writes_its_report_and_ends_its_workers_even_in_a_kernel_that_hangs(
    tmp_path: Path, golden: Path, send: Callable[[int, int], None]
) -> None:
    body = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); ctypes.CDLL(None).pause()"
    library = write_library(tmp_path, "hangs", _MUL.format(body=body))
    command = [sys.executable, "-m", "isthmus", "conform", "run", "--driver", "host", "--golden", str(golden)]
    command += ["--operators", "mul.Tensor,driver::set_async", "--library", str(library), "--jobs", "1"]
    command += ["--output", str(tmp_path)]
    pipe = subprocess.PIPE
    run = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    _until(lambda: (tmp_path / "pid").is_file() and bool((tmp_path / "pid").read_text()))
    worker = int((tmp_path / "pid").read_text())
    assert os.getpgid(worker) != run.pid  # Ctrl-C would otherwise count as its crash
    send(run.pid, signal.SIGTERM if send is os.kill else signal.SIGINT)
    summary, progress = run.communicate(timeout=60)
    assert (run.returncode, progress) == (130, "")
    assert "INTERRUPTED: driver host, 1 driver function, " in summary
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["interrupted"]
    assert {(row["operator"], row["status"]) for row in report["results"]} == {
        ("driver::set_async", "passed")
    }
    status = Path(f"/proc/{worker}/status")
    _until(lambda: not status.exists() or "\tZ" in status.read_text())


def test_many_slow_calls_are_not_taken_for_one_that_hangs(
    tmp_path: Path, golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "CASE_SECONDS", 2.0)  # of 1,024 calls, each of which takes 3 ms
    library = write_library(tmp_path, "slow", _MUL.format(body="time.sleep(0.003)"))
    setup = {"driver": "numpy", "libraries": [str(library)], "through": "kernels", "keep": None}
    worker = processes.WorkerProcess(setup, 1)
    job = processes.Job(["load-calls"], _blank, "aten::mul.Tensor", str(golden))
    try:
        (result,) = worker.run(job, 0, "")
    finally:
        worker.close()
    assert result.status == "passed", result.message
    assert result.seconds > 2.0


def _blank(case: str) -> CaseResult:
    return CaseResult("pointwise", "slow", "aten::mul.Tensor", "", case)


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
