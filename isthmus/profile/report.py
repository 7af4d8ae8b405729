"""Sections of a report as text for a terminal, and as one HTML file that loads nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from isthmus._support.files import write_file

_MICROSECONDS = (("s", 1e6), ("ms", 1e3))
_NAME_WIDTH = 72  # of the first column in text


@dataclass
class Section:
    """A titled table. The first column is a name, the others are figures."""

    title: str
    head: list[str]
    rows: list[list[str]] = field(default_factory=list)
    note: str = ""


def format_time(microseconds: float) -> str:
    """Such as ``12.345 ms``."""
    for unit, scale in _MICROSECONDS:
        if abs(microseconds) >= scale:
            return f"{microseconds / scale:.3f} {unit}"
    return f"{microseconds:.3f} us"


def format_share(part: float, whole: float) -> str:
    """Such as ``12.3 %``; a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole > 0 else "-"


def as_text(title: str, sections: list[Section]) -> str:
    """Aligned columns; long names are cut in the middle."""
    return "\n\n".join([title, *(_section_text(section) for section in sections)])


def _section_text(section: Section) -> str:
    rows = [section.head, *([_shortened(row[0]), *row[1:]] for row in section.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(section.head))]
    lines = [section.title]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join(cells).rstrip())
    if not section.rows:
        lines.append("  none")
    return "\n".join([*lines, f"  {section.note}"] if section.note else lines)


def _shortened(name: str) -> str:
    if len(name) <= _NAME_WIDTH:
        return name
    half = (_NAME_WIDTH - 3) // 2
    return f"{name[:half]}...{name[-half:]}"


def write_page(path: Path, title: str, sections: list[Section]) -> None:
    """Write the report as HTML, mode 0640."""
    body = "\n".join(_section_html(section) for section in sections)
    page = _PAGE.replace("@TITLE@", escape(title)).replace("@BODY@", body)
    write_file(path, [page.encode(errors="replace")])


def _section_html(section: Section) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in section.head)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in section.rows
    )
    note = f"<p>{escape(section.note)}</p>" if section.note else ""
    return (
        f"<h2>{escape(section.title)}</h2>\n{note}"
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em; }
h1 { font-size: 1.3em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .2em .6em; text-align: right; white-space: nowrap; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
td { font-variant-numeric: tabular-nums; }
:root { color-scheme: light dark; }
</style>
</head>
<body>
<h1>@TITLE@</h1>
@BODY@
</body>
</html>
"""
