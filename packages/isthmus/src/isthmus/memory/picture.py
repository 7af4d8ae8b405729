"""Pictures of the address space over time, one panel per allocator, as PNG, SVG or HTML page.

Blocks are coloured by lifetime, from one event (yellow) to the whole trace (violet). White is reserved but unused,
grey is not reserved. Addresses that were never reserved are left out. All panels have the same axes and a curve of
the bytes reserved, since addresses reserved at different times make a panel higher than the memory that it needs.
"""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.memory.replay import Outcome, Spans
from isthmus.memory.table import columns, unit_for
from isthmus.memory.trace import STEP, Trace, TraceError
from isthmus_common.files import write_file
from isthmus_common.html import render

_WIDTH, _HEIGHT = 1400, 700  # size of a panel's raster
_GREY, _WHITE = (0.82, 0.82, 0.82), (1.0, 1.0, 1.0)
_STEP_END: dict[str, Any] = {"color": "black", "linewidth": 0.5, "linestyle": "--"}
_RESERVED: dict[str, Any] = {"color": "limegreen", "linewidth": 1.5}

Array = np.ndarray[Any, np.dtype[Any]]


def draw(path: Path, trace: Trace, panels: Sequence[Spans], outcomes: Sequence[Outcome] = ()) -> None:
    """Write the picture (mode 0640) in the format of the file's suffix.

    Args:
        path: ends in .png, .svg or .html.
        trace: the replayed trace.
        panels: blocks and segments of each allocator.
        outcomes: rows of the table on an HTML page.

    Raises:
        TraceError: unknown suffix, or matplotlib is not installed.
    """
    kind = path.suffix.removeprefix(".")
    if kind not in ("png", "svg", "html"):
        raise TraceError(f"--picture {path}: unknown format; give a name that ends in .png, .svg or .html")
    image = _figure(trace, panels, "png" if kind == "html" else kind)
    write_file(path, [_page(trace, image, outcomes) if kind == "html" else image])


def _figure(trace: Trace, panels: Sequence[Spans], kind: str) -> bytes:
    try:
        import matplotlib
    except ImportError:
        raise TraceError("--picture needs matplotlib; run `pip install matplotlib`") from None
    from matplotlib.figure import Figure  # pyplot would keep figures and choose a window system

    colours = matplotlib.colormaps["plasma_r"]
    figure = Figure(figsize=(12, 0.6 + 4.4 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    heights = [int(_Addresses(spans).total) for spans in panels]
    for axis, spans in zip(axes, panels, strict=True):
        _panel(axis, trace, spans, max(heights), colours)
    figure.suptitle(f"{trace.name}: {trace.model}", fontsize=9)
    axes[-1].set_xlabel("event")
    _legend(figure, axes, len(trace), colours)
    out = io.BytesIO()
    matplotlib.rcParams["svg.hashsalt"] = "isthmus"
    figure.savefig(out, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def _panel(axis: Any, trace: Trace, spans: Spans, height: int, colours: Any) -> None:
    name, unit = unit_for(height)
    axis.imshow(
        raster(trace, spans, height, colours),
        origin="lower",
        aspect="auto",
        interpolation="none",
        extent=(0, len(trace), 0, max(height, 1) / unit),
    )
    for end in np.flatnonzero(trace.kind == STEP):
        axis.axvline(end, **_STEP_END)
    held = reserved_bytes(spans, len(trace)) / unit
    axis.plot(held, **_RESERVED)
    peak = held.max(initial=0)
    axis.set_title(f"{spans.allocator}: at most {peak:.2f} {name} reserved", fontsize=9, loc="left")
    axis.set_ylabel(f"address, {name}")


def _legend(figure: Any, axes: Any, events: int, colours: Any) -> None:
    """Explain the colours beside the panels and below them."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lifetimes = ScalarMappable(LogNorm(1, max(events, 2)), colours)
    figure.colorbar(lifetimes, ax=list(axes), label="block in use, by lifetime in events", aspect=40)
    handles = [
        Patch(facecolor=_WHITE, edgecolor="black", label="reserved, not in use"),
        Patch(facecolor=_GREY, edgecolor="black", label="not reserved"),
        Line2D([], [], label="bytes reserved", **_RESERVED),
        Line2D([], [], label="end of a step", **_STEP_END),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9)


def reserved_bytes(spans: Spans, events: int) -> Array:
    """Return the bytes reserved at each event, int64 [events]."""
    change = np.zeros(events + 1, np.int64)
    np.add.at(change, spans.segments[:, 0], spans.segments[:, 3])
    np.subtract.at(change, spans.segments[:, 1], spans.segments[:, 3])
    held: Array = change.cumsum()[:-1]
    return held


def raster(trace: Trace, spans: Spans, height: int, colours: Any) -> Array:
    """Return the panel's colours, float [700, 1400, 3], from low addresses up to height bytes."""
    pixels = np.empty((_HEIGHT, _WIDTH, 3))
    pixels[:] = _GREY
    addresses = _Addresses(spans)
    events, size = len(trace), max(height, 1)

    def fill(rows: Array, colour: Array) -> None:
        start = rows[:, 0] * _WIDTH // events
        end = -(-rows[:, 1] * _WIDTH // events)
        place = addresses.compact(rows[:, 2])
        low = place * _HEIGHT // size
        high = -(-(place + rows[:, 3]) * _HEIGHT // size)
        for x0, x1, y0, y1, each in zip(start, end, low, high, colour, strict=True):
            pixels[y0:y1, x0 : max(x1, x0 + 1)] = each

    fill(spans.segments, np.broadcast_to(np.array(_WHITE), (len(spans.segments), 3)))
    lifetime = np.log(np.maximum(spans.blocks[:, 1] - spans.blocks[:, 0], 1)) / np.log(max(events, 2))
    # The shortest first: a pixel shows its longest block.
    order = np.argsort(lifetime, kind="stable")
    fill(spans.blocks[order], colours(lifetime[order])[:, :3])
    return pixels


class _Addresses:
    """Addresses without the ranges that no segment ever covered."""

    def __init__(self, spans: Spans) -> None:
        rows = spans.segments[np.argsort(spans.segments[:, 2], kind="stable")]
        starts, ends = rows[:, 2], np.maximum.accumulate(rows[:, 2] + rows[:, 3])
        fresh = np.ones(len(rows), bool)
        fresh[1:] = starts[1:] > ends[:-1]
        self.starts = starts[fresh]
        last = np.append(np.flatnonzero(fresh)[1:], len(rows)) - 1
        lengths = ends[last[: len(self.starts)]] - self.starts  # empty if the first event ran out of memory
        self.places = np.cumsum(lengths) - lengths
        self.total = int(lengths.sum())

    def compact(self, addresses: Array) -> Array:
        """Return the positions of addresses in the picture, in bytes from 0."""
        run = np.searchsorted(self.starts, addresses, side="right") - 1
        placed: Array = self.places[run] + addresses - self.starts[run]
        return placed


def _page(trace: Trace, image: bytes, outcomes: Sequence[Outcome]) -> bytes:
    return render(
        "isthmus/memory/picture.html.j2",
        title=trace.name,
        trace=trace,
        events=len(trace),
        table_lines=columns(outcomes),
        image=base64.b64encode(image).decode(),
    ).encode()
