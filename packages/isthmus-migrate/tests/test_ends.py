"""Every idiom has one end: it is changed, left with a reason, or right; a second look finds what the first left."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from isthmus_migrate.convert.engine import Result, convert_source
from isthmus_migrate.rules.registry import all_rules
from isthmus_migrate.source.findings import LEFT, Finding, Severity
from tests.helpers.analysis import findings

FIXTURES = Path(__file__).parent / "fixtures"
CASES = sorted(folder.name for folder in FIXTURES.iterdir() if (folder / "before.py").exists())
HEAD = """import argparse, os, torch, torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""
# One pattern a line; a line end within one is written as in a string.
PATTERNS = (Path(__file__).parent / "patterns.txt").read_text().splitlines()


@pytest.mark.parametrize("case", CASES)
def test_fixtures(case: str):
    options = [rule.option for rule in all_rules() if rule.option and case.startswith(rule.name)]
    check((FIXTURES / case / "before.py").read_bytes().decode(), options)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern: str):
    definition = "\ndef f(): pass" if pattern.startswith("@") else ""
    check(HEAD + pattern.replace("\\n", "\n") + definition + "\n")


def check(text: str, options: list[str] | None = None) -> None:
    """Convert a source twice: each finding has an end, and the second conversion finds what the first left."""
    first = convert_source(text, "train.py", options=options or [])
    ast.parse(first.text)
    for each in first.findings:
        assert (each.severity is Severity.AUTOMATIC) == bool(each.edits), each
    assert not twice(first)
    assert first.changes or first.text == text
    again = convert_source(first.text, "train.py", options=options or [])
    assert (again.text, again.changes) == (first.text, [])
    assert left(again.findings) == left(first.findings)
    if not options:
        codes = {rule.code for rule in all_rules()}
        assert left(each for each in findings(text) if each.code in codes) == left(first.findings)


def left(found) -> Counter[tuple[str, str]]:
    """Count the findings that are left to a person."""
    return Counter((each.code, each.subject) for each in found if each.severity in LEFT)


def twice(result: Result) -> list[tuple[Finding, Finding]]:
    """Findings with a common edit, or of one place with different ends."""
    pairs = [(one, two) for i, one in enumerate(result.findings) for two in result.findings[i + 1 :]]
    return [
        (one, two)
        for one, two in pairs
        if set(one.edits).intersection(two.edits)
        or (place(one) == place(two) and one.severity is not two.severity)
    ]


def place(finding: Finding) -> tuple[int, int, str]:
    """Return the place and the subject of a finding."""
    return finding.line, finding.column, finding.subject.strip('"`')
