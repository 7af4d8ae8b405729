"""Output and exit status of an analysis."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from isthmus_common.files import write_file
from isthmus_migrate.analyse.codes import GROUPS
from isthmus_migrate.analyse.csv_report import as_csv, write_folder
from isthmus_migrate.analyse.engine import Report
from isthmus_migrate.analyse.html_report import as_page
from isthmus_migrate.analyse.sarif import as_sarif
from isthmus_migrate.analyse.table import line, print_report, summary
from isthmus_migrate.rules.registry import all_rules
from isthmus_migrate.source.findings import Severity, reach


class Request(NamedTuple):
    """Options of the command; see ``isthmus migrate analyse --help``."""

    format: str = "table"
    output: Path | None = None
    csv: Path | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str = "manual"
    all: bool = False

    def mistake(self) -> str:
        """Return the first mistake in the options in one line, or ""."""
        if self.format not in FORMATS:
            return f"--format {self.format}: choose from {', '.join(FORMATS)}"
        for code in (*self.select, *self.ignore):
            if any(rule.code.startswith(code) for rule in all_rules()):
                continue
            if not code.startswith("IM"):
                return f"{code}: not a code; expected one such as IM101, or IM1 for a group"
            if code[:3] not in ("IM", *GROUPS):
                return f"{code}: unknown group; expected one of {', '.join(GROUPS)}"
        return ""


def write(report: Report, request: Request) -> bool:
    """Print or write the selected findings; return whether any reaches the severity ``fail_on``.

    Raises:
        OSError: a file cannot be written.
    """
    wanted = tuple(request.select) or ("",)
    findings = [
        f for f in report.findings if f.code.startswith(wanted) and not f.code.startswith(request.ignore)
    ]
    report = report._replace(findings=findings)
    if not request.all:
        report = report.without_not_applicable()
    if request.csv:
        write_folder(request.csv, report.findings)
    if request.output:
        write_file(request.output, FORMATS[request.format](report).encode())
        print(summary(report))
    elif request.format == "table":
        print_report(report)
    else:
        sys.stdout.write(FORMATS[request.format](report))
    return reach(findings, request.fail_on)


def as_lines(report: Report) -> str:
    """Return one line per finding and the summary."""
    return "\n".join([*(line(finding) for finding in report.findings), summary(report)]) + "\n"


def as_json(report: Report) -> str:
    """Return ``{"files": .., "lines": .., "not_applicable": .., "findings": [{"code": .., "severity": .., ..}]}``."""
    hidden = report.hidden + sum(each.severity is Severity.NONE for each in report.findings)
    counts = {"files": report.files, "lines": report.lines, "not_applicable": hidden}
    findings = [each.as_dict() for each in report.findings]
    return json.dumps({**counts, "findings": findings}, indent=2) + "\n"


FORMATS: dict[str, Callable[[Report], str]] = {
    "table": as_lines,
    "json": as_json,
    "sarif": as_sarif,
    "csv": as_csv,
    "html": as_page,
}
