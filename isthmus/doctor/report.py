"""The report, as text or JSON."""

import io
import json
import sys

from isthmus.doctor import examine
from isthmus.doctor.finding import Finding, State

_MARKS = {State.OK: "ok", State.WARNING: "warn", State.FAIL: "FAIL"}


def main(as_json: bool) -> int:
    """Run all checks and print the findings; return 1 if any failed, else 0."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # characters missing in the terminal's encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    findings = examine()
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        print("\n".join(map(line, findings)))
    return int(any(finding.state is State.FAIL for finding in findings))


def line(finding: Finding) -> str:
    """Format a finding with its remedy in one line."""
    text = "; ".join(filter(None, (finding.text, finding.remedy)))
    return f"{_MARKS[finding.state]:<4}  {finding.subject:<12} {text}"
