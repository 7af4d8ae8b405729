"""The bank of silent errors: its rows are well-formed, every fault can be made, and its pages are current."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus import opset
from tools.mutation import bank
from tools.mutation.bank import page
from tools.mutation.bank.__main__ import app
from tools.mutation.mutant import CLASSES
from tools.repository import ROOT

RESULT = ROOT / "benchmarks" / "results" / "silent-errors.json"
PAGE = ROOT / "docs" / "chip-makers" / "silent-errors.md"


def test_every_fault_can_be_made() -> None:
    for report in bank.REPORTS:
        assert callable(report.wrong()), report
        assert callable(report.mutant(report.operators[0]).wrong)


def test_rows_use_known_words() -> None:
    for report in bank.REPORTS:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", report.thread), report
        assert report.backend in bank.BACKENDS, report
        assert report.condition in bank.CONDITIONS, report
        assert report.operators, report
        assert set(report.operators) <= set(opset.operators()), report
        assert 0 < len(report.text) <= 110, report
    assert not [thread for thread, n in Counter(r.thread for r in bank.REPORTS).items() if n > 1]
    assert {report.backend for report in bank.REPORTS} == set(bank.BACKENDS)


def test_the_page_has_a_text_for_each_class_and_condition() -> None:
    for words in page.WORDS.values():
        assert list(words["classes"]) == list(CLASSES)
        assert list(words["conditions"]) == list(bank.CONDITIONS)


@pytest.mark.parametrize(("language", "folder"), [("en", "docs"), ("zh", "docs/zh")])
def test_the_pages_are_those_of_the_result(language: str, folder: str) -> None:
    text = page.text(json.loads(RESULT.read_text()), page.WORDS[language])
    written = (ROOT / folder / "chip-makers" / PAGE.name).read_text()
    assert written == text, (
        f"python -m tools.mutation.bank --report {RESULT.relative_to(ROOT)} --page {PAGE.relative_to(ROOT)}"
    )
    assert all(
        f"[{r.thread}](https://github.com/{r.thread.replace('#', '/issues/')})" in text for r in bank.REPORTS
    )


def test_a_report_is_detected_in_any_of_its_operators() -> None:
    first, second, third = bank.REPORTS[:3]
    rows = ((first, ["survived", "caught"]), (second, ["survived"]))
    reports = [{"thread": r.thread, "results": [{"status": s} for s in each]} for r, each in rows]
    text = page.text({"opset": "0" * 64, "reports": reports}, page.WORDS["en"])
    ends = {
        r.thread: next(line for line in text.splitlines() if f"[{r.thread}]" in line)
        for r in (first, second, third)
    }
    assert ends[first.thread].endswith("| yes |")
    assert ends[second.thread].endswith("| **no** |")
    assert ends[third.thread].endswith("| - |")
    assert f"1 of {len(bank.REPORTS)} are detected" in text


def test_a_wrong_result_ends_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--report", str(tmp_path / "none.json")])
    assert result.exit_code == 2
    assert "none.json" in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_page_outside_docs_is_refused_in_one_line_before_the_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--page", str(tmp_path / "page.md")])
    assert result.exit_code == 2
    assert result.output.startswith(f"isthmus: --page {tmp_path / 'page.md'}: expected a file in ")
    assert len(result.output.strip().splitlines()) == 1
