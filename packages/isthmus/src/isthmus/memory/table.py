"""Tables of ``isthmus memory replay`` and ``isthmus memory trace show``."""

from collections.abc import Sequence

import numpy as np

from isthmus.memory.replay import Outcome
from isthmus.memory.trace import ALLOC, FREE, USE, Trace
from isthmus_common import units
from isthmus_common.tables import align_columns
from isthmus_common.text import count

_HEAD = (
    "trace|allocator|live {unit}|reserved|step 1: reserved/live|then: reserved/live|fragmentation|"
    "ns/event|driver calls"
).split("|")


def unit_for(size: int) -> tuple[str, int]:
    """Return name and bytes of the largest unit up to GiB not larger than size, or the smallest unit."""
    name, scale = units.unit_for(size, ("B", "KiB", "MiB", "GiB"))
    return "bytes" if name == "B" else name, scale


def columns(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return rows of cells, the head first; sizes are in the unit of the smallest live peak."""
    peaks = [outcome.live_peak for outcome in outcomes if outcome.out_of_memory < 0 and outcome.live_peak]
    name, unit = unit_for(min(peaks, default=units.GIB))
    head = [cell.format(unit=name) for cell in _HEAD]
    return [head, *(_cells(outcome, unit) for outcome in outcomes)]


def _cells(outcome: Outcome, unit: int) -> list[str]:
    if outcome.out_of_memory >= 0:
        failed = f"out of memory at event {outcome.out_of_memory}"
        return [outcome.trace, outcome.allocator, failed, *["-"] * (len(_HEAD) - 3)]
    return [
        outcome.trace,
        outcome.allocator,
        f"{outcome.live_peak / unit:.2f}",
        f"{outcome.reserved_peak / unit:.2f}",
        _figure(f"{outcome.ratio_first:.4f}"),
        _figure(f"{outcome.ratio:.4f}"),
        _figure(f"{100 * outcome.fragmentation:.2f} %"),
        f"{outcome.best:.1f}",
        f"{outcome.growths} + {outcome.releases}",
    ]


def _figure(text: str) -> str:
    """Replace NaN by a dash: a trace of one step has no later steps."""
    return "-" if text.startswith("nan") else text


def describe(trace: Trace) -> str:
    """Summarize a trace: events, live peak of each step, sizes and lifetimes."""
    counts = {kind: int(np.count_nonzero(trace.kind == kind)) for kind in (ALLOC, FREE, USE)}
    streams = len(np.unique(trace.stream[trace.kind == ALLOC]))
    highest = trace.live_peaks()
    name, unit = unit_for(max(highest, default=units.GIB))
    peaks = ", ".join(f"{peak / unit:.2f}" for peak in highest) or "none"
    separate = f"; streams apart {trace.separate_peak() / unit:.2f}" if streams > 1 else ""
    return "\n".join(
        [
            f"{trace.name}: {trace.model}",
            f"made by: {trace.made}",
            f"{len(trace)} events: {counts[ALLOC]} allocations, {counts[FREE]} frees, "
            f"{counts[USE]} uses on another stream, {trace.steps} steps; allocations on "
            f"{count(streams, 'stream')}",
            f"live peak of each step, {name}: {peaks}{separate}",
            "",
            align_columns(_histogram(trace)),
        ]
    )


def _histogram(trace: Trace) -> list[list[str]]:
    sizes = trace.sizes
    made = np.flatnonzero(trace.kind == ALLOC)
    freed = np.flatnonzero(trace.kind == FREE)
    end = np.full(len(sizes), len(trace))
    end[trace.id[freed]] = freed
    lifetime = end - made
    lines = [["size", "allocations", "distinct sizes", "in all", "median lifetime, events"]]
    limits = [1 << shift for shift in (9, 12, 16, 20, 24, 26, 28, 30)]
    texts = ["512 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB", "64 MiB", "256 MiB", "1 GiB"]
    for low, high, text in zip(
        [0, *limits], [*limits, 1 << 62], [f"up to {t}" for t in texts] + ["more"], strict=True
    ):
        these = (sizes > low) & (sizes <= high)
        if these.any():
            distinct, total = len(np.unique(sizes[these])), int(sizes[these].sum())
            name, unit = unit_for(total)
            lines.append(
                [
                    text,
                    str(these.sum()),
                    str(distinct),
                    f"{total / unit:.2f} {name}",
                    f"{int(np.median(lifetime[these]))}",
                ]
            )
    return lines
