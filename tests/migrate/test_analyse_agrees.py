"""The findings of analyse agree with what convert does on every line."""

from pathlib import Path

import pytest

from isthmus.migrate.convert.engine import convert_source
from isthmus.migrate.source.findings import Severity
from tests.helpers.analysis import findings

FIXTURES = Path(__file__).parent / "fixtures"
WHOLE_SCRIPTS = ("data-parallel", "apex")  # changed as a whole, under one code
CASES = sorted(
    folder.name
    for folder in FIXTURES.iterdir()
    if (folder / "before.py").exists() and not folder.name.startswith(WHOLE_SCRIPTS)
)
HEAD = """import argparse, os, torch, torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""
# One pattern a line; a line end within one is written as in a string.
PATTERNS = (Path(__file__).parent / "patterns.txt").read_text().splitlines()


@pytest.mark.parametrize("case", CASES)
def test_lines_and_codes(case: str):
    text = (FIXTURES / case / "before.py").read_bytes().decode()
    moved = {"IM118"} if "from torch.cuda.amp" in text else set()  # an import is changed, and its uses stay
    assert_agree(text, moved)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern: str):
    definition = "\ndef f(): pass" if pattern.startswith("@") else ""
    text = HEAD + pattern.replace("\\n", "\n") + definition + "\n"
    moved = {"IM118"} if "from torch.cuda" in text else set()
    assert_agree(text, moved)


def assert_agree(text: str, moved: set[str]) -> None:
    """The conversion does what is called automatic, does nothing that is not found, and leaves nothing unsaid.

    Args:
        text: of a source.
        moved: codes of names that another rule's change of their import converts.
    """
    result = convert_source(text, "before.py")
    changed = {(change.line, change.code) for change in result.changes}
    left = {(each.line, each.code) for each in result.findings}
    found = [finding for finding in findings(text) if finding.code.startswith(("IM1", "IM2"))]
    assert (changed | left) - {(finding.line, finding.code) for finding in found} == set()
    promised = {(each.line, each.code) for each in found if each.severity is Severity.AUTOMATIC}
    assert {each for each in promised if each[1] not in moved} - changed == set()
    assert promised & left == set()


@pytest.mark.parametrize("case", CASES)
def test_nothing_automatic_is_left_after_a_conversion(case: str):
    text = (FIXTURES / case / "after.py").read_bytes().decode()
    left = {
        (finding.line, finding.code) for finding in findings(text) if finding.severity is Severity.AUTOMATIC
    }
    assert left == set()
