"""report.html: the results of a run as one page, drawn by a script in it."""

from typing import Any

from isthmus.conformance.judge import BINS
from isthmus_common.html import render as render_template

_FIELDS = (
    "family library operator dtype case layout status message seconds worst histogram tolerance guess command cases"
).split()


def render(data: dict[str, Any]) -> str:
    """Return the page of a report."""
    rows = [[row[name] for name in _FIELDS] for row in data["results"]]
    content = {key: value for key, value in data.items() if key != "results"}
    content |= {"bins": BINS, "fields": _FIELDS, "rows": rows}
    return render_template(
        "isthmus/conformance/report.html.j2", title=f"Conformance of {data['driver']}", data=content
    )
