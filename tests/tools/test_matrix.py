"""The matrix of versions: its cells, what it reads from the outputs of its steps, and its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import matrix
from tools.matrix import Cell


def test_cells_have_environments_of_their_own() -> None:
    cells = [Cell.parse(text) for text in (*matrix.CELLS, "2.15.0@/opt/python3.14/bin/python3.14")]
    assert cells[0].suffix == ""  # the default environment
    assert cells[-1] == ("2.15.0", "/opt/python3.14/bin/python3.14")
    assert cells[-1].suffix == "-2.15.0-python3.14" and cells[-1].folder.name == "2.15.0-python3.14"
    assert len({cell.suffix for cell in cells}) == len({cell.folder for cell in cells}) == len(cells)


OUTPUTS = {
    "tests": "...F\nsampled: 3 of 9\n== 1 failed, 1134 passed, 8 skipped in 90.07s ==",
    "opinfo": "FAIL add float32 forward: no\nopinfo: 172 judged in 60 s, 1 failed unexpectedly",
    "conform host": "family\nFAILED: driver host, 90 operators, 4,001 passed, 2 failed\nreport: x",
    "conform numpy": "no driver",
    "patches": "isthmus: a line\n52 190 0",
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cell:
    """A cell whose steps print OUTPUTS, and whose trainings write losses."""

    def call(cell: Cell, step: str, *words: str, check: bool = False, **environment: str) -> str:
        if step.startswith("training"):
            folder = Path(words[-1])
            folder.mkdir(parents=True)
            last = 2.0 if step.endswith("cpu") else 2.5
            rows = [{"iteration": i, "hex": loss.hex()} for i, loss in enumerate((4.0, last))]
            text = "\n".join(map(json.dumps, [*rows, {"evaluation": 1}]))
            (folder / "metrics.jsonl").write_text(text + "\n")
        return OUTPUTS.get(step, "")

    monkeypatch.setattr(matrix, "call", call)
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    return Cell("2.15.0", "")


def test_counts_are_those_that_the_steps_print(steps: Cell) -> None:
    assert matrix.run_tests(steps) == "1 failed, 1,134 passed"
    assert matrix.train(steps) == "1 of 2 losses equal"
    assert matrix.judge_operators(steps) == "172 judged, 1 failed"
    assert matrix.conform(steps, "host") == "90 operators, 4,001 passed, 2 failed"
    assert matrix.conform(steps, "numpy") == "no result"
    assert matrix.count_patches(steps) == "52 + 190"


def test_the_page_has_a_row_per_cell() -> None:
    row = ["2.15.0", "3.11.7", *"abcdefg"]
    assert matrix.page([row, row]).count("| 2.15.0 | 3.11.7 | a | b |") == 2
    assert len(row) == len(matrix.HEADINGS)


def test_a_step_that_cannot_run_names_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    with pytest.raises(matrix.Failed, match=r"false failed on 2.15.0; see .*/runs/matrix/2.15.0/set-up.log"):
        matrix.call(Cell("2.15.0", ""), "set up", "false", check=True)
