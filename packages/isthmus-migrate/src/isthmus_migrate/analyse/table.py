"""Printed report: tables on a terminal, one line per finding when piped."""

import sys
from collections import Counter
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from isthmus_common.text import count
from isthmus_migrate.analyse.engine import Report
from isthmus_migrate.rules.cuda_only_file import verdict
from isthmus_migrate.source.findings import Finding, Severity

_MOST_PLACES = 3
_SECTIONS = {
    Severity.MANUAL: ("left: convert by hand", "red"),
    Severity.REVIEW: ("left: the source does not show what it means", "yellow"),
    Severity.AUTOMATIC: ("changed by `isthmus migrate convert`", "green"),
    Severity.ADVICE: ("optional, for speed or precision", "cyan"),
    Severity.NONE: ("not applicable: right as it is", "dim"),
}


def print_report(report: Report) -> None:
    """Print a table per severity on a terminal, with equal findings in one row; else one line per finding."""
    if sys.stdout.isatty():
        for severity, (words, colour) in _SECTIONS.items():
            if found := [finding for finding in report.findings if finding.severity is severity]:
                Console().print(_section(f"{words} ({severity.value})", colour, found))
    else:
        for finding in report.findings:
            print(line(finding))
    print(summary(report))


def summary(report: Report) -> str:
    """Return the counts, and what is not convertible, in one line."""
    counts = Counter(finding.severity for finding in report.findings)
    manual, review = counts[Severity.MANUAL], counts[Severity.REVIEW]
    parts = [f"{counts[Severity.AUTOMATIC]} to change", f"{manual + review} left"]
    if manual + review:
        parts[-1] += f" ({manual} manual, {review} to review)"
    if counts[Severity.ADVICE]:
        parts.append(f"{counts[Severity.ADVICE]} advice")
    parts.append(f"{counts[Severity.NONE] + report.hidden} not applicable")
    looked = f"{count(report.files, 'file')}, {count(report.lines, 'line')}"
    said = verdict(report.findings)
    return f"{looked}: {', '.join(parts)}" + (f"; {said}" if said else "")


def line(finding: Finding) -> str:
    """Format a finding: ``path:line:column: code severity: subject message; advice``."""
    place = f"{finding.path}:{finding.line}:{finding.column}" if finding.line else finding.path
    said = f"{finding.subject} {finding.message}; {finding.advice}"
    return f"{place}: {finding.code} {finding.severity.value}: {said}"


def _section(title: str, colour: str, findings: list[Finding]) -> Table:
    table = Table("code", "what", "advice", "where", box=None, header_style="bold", title_justify="left")
    table.title = Text(title, style=f"bold {colour}")

    def kind(finding: Finding) -> tuple[str, str, str, str]:
        return finding.code, finding.subject, finding.message, finding.advice

    for (code, subject, message, advice), same in groupby(sorted(findings, key=kind), kind):
        table.add_row(code, Text(f"{subject} {message}"), Text(advice), Text(_places(list(same))))
    return table


def _places(findings: list[Finding]) -> str:
    places = [f"{each.path}:{each.line}" if each.line else each.path for each in findings]
    more = len(places) - _MOST_PLACES
    return "\n".join([*places[:_MOST_PLACES], *([f"and {more} more"] if more > 0 else [])])
