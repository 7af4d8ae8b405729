"""The report of ``isthmus migrate analyse`` as one HTML page."""

from collections import Counter
from itertools import groupby

from isthmus_common.html import render
from isthmus_common.text import count
from isthmus_migrate.analyse.codes import title
from isthmus_migrate.analyse.engine import Report
from isthmus_migrate.source.findings import RANKS, Severity

_ORDER = tuple(reversed(RANKS))
_LABELS = {each.value: each.value for each in RANKS} | {
    "automatic": "changed",
    "review": "left: review",
    "manual": "left: manual",
    "none": "not applicable",
}


def as_page(report: Report) -> str:
    """Return a page with the counts, then the findings of each file."""
    counts = Counter(finding.severity for finding in report.findings)
    sources = f"{count(report.files, 'file')}, {count(report.lines, 'line')}"
    return render(
        "isthmus_migrate/analyse/report.html.j2",
        title="CUDA dependencies of this project",
        summary=f"{count(len(report.findings), 'finding')} in {sources}",
        severities=[(each.value, counts[each] + report.hidden * (each is Severity.NONE)) for each in _ORDER],
        labels=_LABELS,
        files=[(path, list(found)) for path, found in groupby(report.findings, lambda f: f.path)],
        code_title=title,
    )
