"""Reports of profiles: sections with tables, as text for a terminal or as one HTML file."""

from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from isthmus_common.files import write_file
from isthmus_common.html import render
from isthmus_common.tables import align_columns

_MICROSECONDS = (("s", 1e6), ("ms", 1e3))
_NAME_WIDTH = 72  # width of the first column in text


@dataclass
class Section:
    """A titled table. The first column is a name, the others are figures.

    Attributes:
        title: of the section.
        head: titles of the columns.
        rows: cells.
        note: a sentence about them.
        stake: of a finding: the time at stake.
        command: of a finding: what isthmus can do about it.
        chart: for the page only.
    """

    title: str
    head: list[str]
    rows: list[list[str]] = field(default_factory=list)
    note: str = ""
    stake: str = ""
    command: str = ""
    chart: Markup = field(default_factory=Markup)


def format_time(microseconds: float) -> str:
    """Format a time, such as ``12.345 ms``."""
    for unit, scale in _MICROSECONDS:
        if abs(microseconds) >= scale:
            return f"{microseconds / scale:.3f} {unit}"
    return f"{microseconds:.3f} us"


def format_share(part: float, whole: float) -> str:
    """Format a share, such as ``12.3 %``; a dash if the whole is 0."""
    return f"{100 * part / whole:.1f} %" if whole > 0 else "-"


def as_text(title: str, sections: list[Section]) -> str:
    """Format the report as text in columns; long names are cut in the middle."""
    return "\n\n".join([title, *(_section_text(section) for section in sections)])


def _section_text(section: Section) -> str:
    rows = [section.head, *([_shorten(row[0]), *row[1:]] for row in section.rows)]
    lines = [": ".join(filter(None, (section.title, section.stake)))]
    lines += [f"  {line}" for line in align_columns(rows, figures=True).splitlines()]
    if not section.rows:
        lines.append("  none")
    notes = [section.note, f"Or: {section.command}" if section.command else ""]
    return "\n".join([*lines, *(f"  {note}" for note in notes if note)])


def _shorten(name: str) -> str:
    if len(name) <= _NAME_WIDTH:
        return name
    half = (_NAME_WIDTH - 3) // 2
    return f"{name[:half]}...{name[-half:]}"


def write_page(path: Path, title: str, sections: list[Section], facts: dict[str, str] | None = None) -> None:
    """Write the report as HTML, mode 0640; ``facts`` are the figures at its top."""
    page = render(
        "isthmus_diagnostics/profile/report.html.j2", title=title, sections=sections, facts=facts or {}
    )
    write_file(path, page.encode(errors="replace"))
