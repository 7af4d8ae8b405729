"""The analysis says of every line what the conversion does with it."""

from pathlib import Path

import pytest

from isthmus.migrate.convert.engine import convert_source
from isthmus.migrate.findings import Severity
from tests.migrate.analysis import findings

FIXTURES = Path(__file__).parent / "fixtures"
WHOLE_SCRIPTS = ("data-parallel", "apex")  # changed as a whole, under one code
CASES = sorted(
    folder.name
    for folder in FIXTURES.iterdir()
    if (folder / "before.py").exists() and not folder.name.startswith(WHOLE_SCRIPTS)
)


@pytest.mark.parametrize("case", CASES)
def test_lines_and_codes(case: str):
    text = (FIXTURES / case / "before.py").read_bytes().decode()
    changed = {(change.line, change.code) for change in convert_source(text, "before.py").changes}
    found = [finding for finding in findings(text) if finding.code.startswith(("IM1", "IM2"))]
    assert changed - {(finding.line, finding.code) for finding in found} == set()
    moved = (
        "IM118" if any(code == "IM131" for _, code in changed) else ""
    )  # its import is changed, not its use
    promised = {(f.line, f.code) for f in found if f.severity is Severity.AUTOMATIC and f.code != moved}
    assert promised - changed == set()


@pytest.mark.parametrize("case", CASES)
def test_nothing_automatic_is_left_after_a_conversion(case: str):
    text = (FIXTURES / case / "after.py").read_bytes().decode()
    left = {
        (finding.line, finding.code) for finding in findings(text) if finding.severity is Severity.AUTOMATIC
    }
    assert left == set()
