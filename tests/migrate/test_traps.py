"""Scripts with known answers, written from PyTorch's documentation without a look at the shim or the converter.

Each trap has its lines of output in comments, ``# answer: LINE``, as a machine with CUDA prints them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.command import isthmus, run

TRAPS = sorted((Path(__file__).parent / "traps").glob("*.py"))
ANSWER = re.compile(r"^# answer: (.*)$", re.MULTILINE)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("trap", TRAPS, ids=lambda path: path.stem)
def test_isthmus_run_prints_the_answers(trap: Path) -> None:
    done = run("--quiet", trap)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ANSWER.findall(trap.read_text())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("trap", TRAPS, ids=lambda path: path.stem)
def test_tracing_changes_no_answer(trap: Path, tmp_path: Path) -> None:
    done = isthmus("migrate", "trace", "-o", tmp_path / "evidence.json", trap)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ANSWER.findall(trap.read_text())
