"""Recording what a job allocates: the allocator's history as a trace, and the command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from isthmus.memory.recording import from_events
from isthmus.memory.trace import ALLOC, FREE, STEP, USE, check, read, write
from tests.helpers import children
from tests.helpers.memory_jobs import COLUMNS

SCRIPT = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 300)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(4):
    model(torch.ones(16, 300, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_history_is_a_trace():
    alloc, requested, completed, segment, step, use = 0, 1, 2, 3, 9, 10
    events = [
        (requested, 1, 5, 0),  # an allocation older than the history
        (use, 1, 77, 0),
        (step, 0, 0, 0),
        (segment, 2, 1000, 0),
        (alloc, 100, 512, 0),
        (alloc, 200, 64, 77),
        (step, 0, 0, 0),
        (step, 0, 0, 0),
        (requested, 100, 512, 0),
        (completed, 100, 512, 0),
        (alloc, 100, 32, 0),
        (use, 100, 77, 0),
        (requested, 200, 64, 77),
        (step, 0, 0, 0),
    ]
    trace = from_events(events, name="n", made="m", model="o")
    check(trace, "n")
    rows = list(zip(*(getattr(trace, name).tolist() for name in COLUMNS), strict=True))
    assert rows == [
        (ALLOC, 0, 512, 0),
        (ALLOC, 1, 64, 1),
        (STEP, 0, 0, 0),
        (FREE, 0, 0, 0),
        (ALLOC, 2, 32, 0),
        (USE, 2, 1, 0),
        (FREE, 1, 0, 0),
        (STEP, 0, 0, 0),
    ]


def test_an_empty_history_is_an_empty_trace(tmp_path: Path):
    trace = from_events([], name="n", made="m", model="o")
    write(trace, tmp_path / "n.trace")
    assert len(read(tmp_path / "n.trace")) == 0


def record(*words: object) -> subprocess.CompletedProcess[str]:
    return children.command("memory", "trace", "record", *words, light=False, timeout=120)


def test_a_training_run_is_recorded(tmp_path: Path):
    script, out = tmp_path / "train.py", tmp_path / "train.trace"
    script.write_text(SCRIPT)
    result = record("--output", out, script)
    assert result.returncode == 0, result.stderr
    trace = read(out)
    assert f"isthmus: {out}: {len(trace)} events in 4 steps" in result.stderr
    assert (trace.name, trace.steps) == ("train", 4)
    assert str(script) in trace.made
    live = trace.live()
    ends = np.flatnonzero(trace.kind == STEP)
    weights = 2 * 4 * (300 * 300 + 300)
    # Live bytes at the end of a step: weights, gradients and, from the first on, momenta.
    assert all(3 * weights <= live[end] < 4 * weights for end in ends)


@pytest.mark.full
def test_a_failing_run_is_recorded_until_the_failure(tmp_path: Path):
    out = tmp_path / "x.trace"
    result = record("--output", out, "-c", "import torch; torch.ones(3, device='chip'); raise SystemExit(7)")
    assert result.returncode == 7
    assert len(read(out)) == 2


def test_runs_that_cannot_be_recorded():
    for program, message in [
        (
            ["torchrun", "x.py"],
            "torchrun: only one process can be recorded; give a script, -m module or -c command",
        ),
        (["absent.py"], "cannot run absent.py: no such file"),
    ]:
        result = record(*program)
        assert result.returncode == 1
        assert result.stderr.startswith(f"isthmus: {message}")
        assert result.stderr.count("\n") == 1


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("call", "is_cut"), [("max_entries=9", True), ("None", True), ("'all'", False)])
def test_a_program_that_ends_the_recording_is_reported(tmp_path: Path, call: str, is_cut: bool):
    out = tmp_path / "x.trace"
    code = f"import torch; torch.ones(3, device='cuda'); torch.cuda.memory._record_memory_history({call})"
    result = record("--output", out, "-c", f"{code}; torch.ones(3, device='cuda')")
    said = f"isthmus: {out}: incomplete: the program calls _record_memory_history itself"
    assert (result.returncode, said in result.stderr) == (int(is_cut), is_cut), result.stderr
    assert is_cut or len(read(out)) == 4


@pytest.mark.full
def test_a_program_without_the_chip_leaves_no_trace(tmp_path: Path):
    out = tmp_path / "x.trace"
    for program, status in [("import torch; torch.ones(3)", 1), ("raise SystemExit(7)", 7)]:
        result = record("--output", out, "-c", program)
        said = "isthmus: no trace written: the program allocated nothing on the chip\n"
        assert (result.returncode, result.stderr, out.exists()) == (status, said, False)


def test_a_trace_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path):
    result = record("--output", tmp_path / "absent" / "x.trace", "-c", "print('ran')")
    message = f"isthmus: {tmp_path}/absent/x.trace: no such folder: {tmp_path}/absent; create it first\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", message)
