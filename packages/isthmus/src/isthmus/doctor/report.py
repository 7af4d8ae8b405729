"""The report of ``isthmus doctor``, as text or JSON."""

import io
import json
import sys

from isthmus.doctor import examine
from isthmus_common.finding import State, line


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
