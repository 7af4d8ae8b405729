"""The report as lines for people or as JSON."""

from __future__ import annotations

import io
import json
import sys

from isthmus.doctor import examine
from isthmus.doctor.finding import Finding, State

_MARKS = {State.OK: "ok", State.WARNING: "warn", State.FAIL: "FAIL"}


def main(as_json: bool) -> int:
    """Look at everything and print it; 1 if something does not work, else 0."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # what a terminal of another encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    findings = examine()
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        print("\n".join(map(line, findings)))
    return int(any(finding.state is State.FAIL for finding in findings))


def line(finding: Finding) -> str:
    """A finding with its remedy, in one line."""
    text = "; ".join(filter(None, (finding.text, finding.remedy)))
    return f"{_MARKS[finding.state]:<4}  {finding.subject:<12} {text}"
