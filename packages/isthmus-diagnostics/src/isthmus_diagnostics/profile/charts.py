"""Charts of a report's page, in HTML and SVG: colours are classes of the page, labels are text that wraps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

Row = tuple[str, list[tuple[float, float, str]]]
"""Label, and (start, width, kind) of its bars in percent of the row; a kind is a class of the page."""


def legend(kinds: Sequence[tuple[str, str]]) -> Markup:
    """Return a legend of (kind, name)."""
    items = Markup("").join(
        Markup('<span><i class="{}"></i>{}</span>').format(kind, name) for kind, name in kinds
    )
    return Markup('<p class="legend">{}</p>').format(items)


def bars(rows: Sequence[Row]) -> Markup:
    """Return rows of bars on one scale."""
    made = []
    for label, parts in rows:
        drawn = "".join(
            f'<rect class="{escape(kind)}" x="{start:.2f}" width="{width:.2f}" height="1"/>'
            for start, width, kind in parts
        )
        svg = Markup(f'<svg viewBox="0 0 100 1" preserveAspectRatio="none">{drawn}</svg>')
        made.append(Markup("<span>{}</span>{}").format(label, svg))
    return Markup('<div class="bars">{}</div>').format(Markup("").join(made))


def stack_bars(shares: Sequence[tuple[float, str]]) -> list[tuple[float, float, str]]:
    """Return the bars of (percent, kind) side by side."""
    made, start = [], 0.0
    for share, kind in shares:
        made.append((start, share, kind))
        start += share
    return made


def heat(rows: Sequence[tuple[str, Sequence[tuple[float, str]]]], columns: int) -> Markup:
    """Return a heat map.

    Args:
        rows: a label and cells: from 0, the page's ground, to 1, the strongest colour; and a text for hovering.
        columns: cells in a line; longer rows continue in the next.
    """
    made = []
    for label, cells in rows:
        drawn = Markup("").join(
            Markup('<i style="--heat: {}%" title="{}"></i>').format(
                round(100 * min(1.0, max(0.0, value))), text
            )
            for value, text in cells
        )
        made.append(Markup("<span>{}</span><div>{}</div>").format(label, drawn))
    return Markup('<div class="heat" style="--columns: {}">{}</div>').format(columns, Markup("").join(made))


def curve(points: Sequence[tuple[float, float]], low: str, high: str, left: str, right: str) -> Markup:
    """Return an area below (x, y); the words are those at the ends of the axes."""
    first, last = points[0][0], points[-1][0]
    top = max(y for _, y in points) or 1.0
    scale = 100 / (last - first) if last > first else 0.0
    line = " ".join(f"{(x - first) * scale:.2f},{40 * (1 - y / top):.2f}" for x, y in points)
    drawn = f'<polygon points="0,40 {line} 100,40"/>'
    svg = Markup(f'<svg viewBox="0 0 100 40" preserveAspectRatio="none">{drawn}</svg>')
    words = Markup("<small>{}</small>{}<small>{}</small><small>{}</small><small>{}</small>")
    return Markup('<div class="curve">{}</div>').format(words.format(high, svg, low, left, right))


def roofline(points: Sequence[tuple[int, float, float, float, str]], rate: float, bandwidth: float) -> Markup:
    """Return operators below the limits of a device, both axes logarithmic.

    Args:
        points: number to show, operations per byte, operations per second, share of the time, and the name.
        rate: operations per second that the device attains.
        bandwidth: bytes per second that it attains.
    """
    ridge = rate / bandwidth
    xs = [ridge / 10, ridge * 10, *(point[1] for point in points)]
    ys = [rate * 1.5, ridge / 10 * bandwidth, *(point[2] for point in points)]
    low, high, bottom, top = (math.log10(end) for end in (min(xs), max(xs), min(ys), max(ys)))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low) / (high - low)
        return 10 + 380 * across, 10 + 200 * (top - math.log10(y)) / (top - bottom)

    corners = [(10**low, 10**low * bandwidth), (ridge, rate), (10**high, rate)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*corner) for corner in corners))
    drawn = Markup("").join(
        Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>').format(
            *place(x, y), 3 + 12 * math.sqrt(share), name
        )
        for _, x, y, share, name in points
    )
    named = Markup("").join(
        Markup('<text x="{:.1f}" y="{:.1f}">{}</text>').format(*place(x, y), number)
        for number, x, y, _, _ in points
    )
    words = Markup('<text class="axis" x="10" y="218">{:.2g} operations per byte</text>').format(10**low)
    words += Markup('<text class="axis end" x="390" y="218">{:.2g}</text>').format(10**high)
    words += Markup('<text class="axis end" x="390" y="{:.1f}">{:.0f} GFLOP/s</text>').format(
        place(1, rate)[1] - 6, rate / 1e9
    )
    words += Markup('<text class="axis" x="14" y="190">{:.1f} GB/s</text>').format(bandwidth / 1e9)
    return Markup('<svg class="roofline" viewBox="0 0 400 220"><polyline points="{}"/>{}{}{}</svg>').format(
        line, drawn, named, words
    )
