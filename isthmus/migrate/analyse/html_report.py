"""A report as one HTML page that loads nothing."""

from __future__ import annotations

from collections import Counter
from html import escape
from itertools import groupby

from isthmus.migrate.analyse.codes import title
from isthmus.migrate.analyse.engine import Report
from isthmus.migrate.analyse.table import count
from isthmus.migrate.source.findings import Finding, Severity

_ORDER = (Severity.MANUAL, Severity.REVIEW, Severity.AUTOMATIC, Severity.ADVICE)


def as_page(report: Report) -> str:
    """Counts, then the findings of each file; check boxes of the severities hide and show without a script."""
    counts = Counter(finding.severity for finding in report.findings)
    boxes = "\n".join(
        f'<input type="checkbox" id="{each.value}" checked><label for="{each.value}">{each.value} '
        f"{counts[each]}</label>"
        for each in _ORDER
    )
    files = "\n".join(_file(path, list(found)) for path, found in groupby(report.findings, lambda f: f.path))
    looked = f"{count(report.files, 'file')}, {count(report.lines, 'line')}"
    head = f"{count(len(report.findings), 'finding')} in {looked}"
    return _PAGE.replace("@HEAD@", head).replace("@BOXES@", boxes).replace("@FILES@", files)


def _file(path: str, findings: list[Finding]) -> str:
    rows = "\n".join(_row(finding) for finding in findings)
    return f"<details open><summary>{escape(path)} ({len(findings)})</summary><table>\n{rows}\n</table></details>"


def _row(finding: Finding) -> str:
    code = f'<span title="{escape(title(finding.code))}">{finding.code}</span>'
    said = f"<code>{escape(finding.subject)}</code> {escape(finding.message)}<br>{escape(finding.advice)}"
    severity = finding.severity.value
    cells = "".join(f"<td>{cell}</td>" for cell in (finding.line or "", code, severity, said))
    return f'<tr class="{severity}">{cells}</tr>'


_HIDDEN = "\n".join(
    f"#{each.value}:not(:checked) ~ details .{each.value} {{ display: none; }}" for each in _ORDER
)
_PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>isthmus migrate analyse</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em; }}
h1 {{ font-size: 1.3em; }}
label {{ margin-right: 1em; }}
summary {{ font-weight: bold; margin-top: 1em; overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; width: 100%; }}
td {{ padding: .2em .6em; vertical-align: top; border-bottom: 1px solid #8884; }}
td:first-child {{ text-align: right; font-variant-numeric: tabular-nums; }}
tr.manual td:nth-child(3) {{ color: #d33; }}
tr.review td:nth-child(3) {{ color: #c80; }}
tr.automatic td:nth-child(3) {{ color: #292; }}
{_HIDDEN}
</style>
</head>
<body>
<h1>What binds this project to CUDA</h1>
<p>@HEAD@</p>
@BOXES@
@FILES@
</body>
</html>
"""
