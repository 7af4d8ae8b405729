"""Reports of profiles: sections with tables, as text for a terminal or as one HTML file."""

from dataclasses import dataclass, field
from pathlib import Path

from isthmus._support.files import write_file
from isthmus._support.html import render
from isthmus._support.tables import aligned

_MICROSECONDS = (("s", 1e6), ("ms", 1e3))
_NAME_WIDTH = 72  # of the first column in text


@dataclass
class Bars:
    """Stacked bars beside a table in the page: shares in percent, in the order of the legend."""

    legend: list[str] = field(default_factory=list)
    rows: list[tuple[str, list[float]]] = field(default_factory=list)


@dataclass
class Line:
    """A curve below a table in the page."""

    points: list[tuple[float, float]]
    name: str
    highest: str
    """Text of the largest value."""

    def path(self, width: float = 1000.0, height: float = 120.0) -> str:
        """Return the points of an SVG polyline."""
        first, last = self.points[0][0], self.points[-1][0]
        top = max(value for _, value in self.points) or 1.0
        scale = width / (last - first) if last > first else 0.0
        return " ".join(f"{(x - first) * scale:.1f},{height * (1 - y / top):.1f}" for x, y in self.points)


@dataclass
class Section:
    """A titled table. The first column is a name, the others are figures. Charts are for the page only."""

    title: str
    head: list[str]
    rows: list[list[str]] = field(default_factory=list)
    note: str = ""
    bars: Bars = field(default_factory=Bars)
    line: Line | None = None


def format_time(microseconds: float) -> str:
    """Format a time, such as ``12.345 ms``."""
    for unit, scale in _MICROSECONDS:
        if abs(microseconds) >= scale:
            return f"{microseconds / scale:.3f} {unit}"
    return f"{microseconds:.3f} us"


def format_bytes(size: float) -> str:
    """Format a size, such as ``1.5 GiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size:.0f} bytes"


def format_share(part: float, whole: float) -> str:
    """Format a share, such as ``12.3 %``; a dash if the whole is 0."""
    return f"{100 * part / whole:.1f} %" if whole > 0 else "-"


def as_text(title: str, sections: list[Section]) -> str:
    """Format the report as text in columns; long names are cut in the middle."""
    return "\n\n".join([title, *(_section_text(section) for section in sections)])


def _section_text(section: Section) -> str:
    rows = [section.head, *([_shortened(row[0]), *row[1:]] for row in section.rows)]
    lines = [section.title, *(f"  {line}" for line in aligned(rows, figures=True).splitlines())]
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
    page = render("profile/report.html.j2", title=title, sections=sections)
    write_file(path, page.encode(errors="replace"))
