"""The report of a job: steps, ranks, links, pipeline, operators against their limits, critical path, memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from isthmus.profile import memory, ranks, vendor
from isthmus.profile.critical import critical_path
from isthmus.profile.host import Host
from isthmus.profile.ranks import Link
from isthmus.profile.report import Bars, Line, Section, format_bytes, format_share, format_time
from isthmus.profile.roofline import Limits, Work, utilization, works
from isthmus.profile.steps import Breakdown, breakdown, mean, steps
from isthmus.profile.trace import Trace

_KINDS = ("compute", "exposed", "copies", "free")


@dataclass
class Overview:
    """What the report says; times in microseconds. Operators, path and memory are those of the first rank."""

    steps: dict[int, list[Breakdown]]
    """By rank."""
    waited_for: dict[int, float]
    """Time that other ranks waited for each rank in collectives, the slowest first."""
    links: list[Link]
    operators: list[Work]
    limits: Limits | None
    mfu: float | None
    """Useful operations of matrix products and attention over the peak; None without a peak."""
    hfu: float | None
    """Executed operations, including recomputed ones, over the peak."""
    critical_path: dict[str, float]
    peaks: list[memory.Peak]
    timeline: list[tuple[float, float]] = field(default_factory=list)


def overview(traces: list[Trace], sources: list[Path], limits: Limits | None, peak: float | None) -> Overview:
    """Analyse the traces of all ranks.

    Args:
        traces: one for each rank, at least one.
        sources: folders of the user's code.
        limits: what the device attains, if known.
        peak: operations per second of the device; by default those of its fastest matrix product in limits.
    """
    first = traces[0]
    host, work, periods = Host(first, sources)(first), steps(first)
    found = works(host, work, periods) or vendor.kernels(first.path)
    peak = peak or (max(limits.flops.values()) if limits else None)
    mfu, hfu = utilization(found, periods, peak) if peak else (None, None)
    peaks = memory.peaks(first, host)
    return Overview(
        steps={trace.rank: vendor.breakdown(trace.path) or breakdown(trace) for trace in traces},
        waited_for=ranks.slowest(ranks.waits(traces)),
        links=ranks.links(traces) or vendor.links(first.path),
        operators=found,
        limits=limits,
        mfu=mfu,
        hfu=hfu,
        critical_path={
            f"{side}: {name}": time for (side, name), time in critical_path(host, work, periods).items()
        },
        peaks=peaks,
        timeline=memory.timeline(first, peaks[0].device) if peaks else [],
    )


def sections(found: Overview, top: int) -> list[Section]:
    """Return the report with at most ``top`` rows per table."""
    made = [_step_section(found, top), _operator_section(found, top), _path_section(found, top)]
    if found.links:
        made.insert(1, _link_section(found, top))
    if len(found.steps) > 1:
        made.insert(1, _rank_section(found))
    return [*made, *([_memory_section(found)] if found.peaks else [])]


def _cells(row: Breakdown) -> list[str]:
    shares = [
        f"{format_time(getattr(row, kind))} {format_share(getattr(row, kind), row.time)}" for kind in _KINDS
    ]
    return [format_time(row.time), *shares, format_time(row.overlapped), format_share(row.bubble, row.time)]


def _step_section(found: Overview, top: int) -> Section:
    head = ["step", "time", "compute", "exposed communication", "copies", "free", "overlapped", "bubble"]
    section = Section("Steps", head, bars=Bars(list(_KINDS)))
    for rank, rows in found.steps.items():
        average = mean(rows)
        named = [(f"rank {rank}, mean", average)]
        if len(found.steps) == 1:
            named += [(f"step {row.step}", row) for row in rows[:top]]
        for name, row in named:
            section.rows.append([name, *_cells(row)])
            section.bars.rows.append((name, [100 * getattr(row, kind) / row.time for kind in _KINDS]))
    if found.mfu is not None and found.hfu is not None:
        section.note = (
            f"MFU {100 * found.mfu:.1f} %, HFU {100 * found.hfu:.1f} %, from the shapes in the trace."
        )
    return section


def _rank_section(found: Overview) -> Section:
    section = Section("Slow ranks", ["rank", "others waited", "share of the step"])
    rows = [row for rows in found.steps.values() for row in rows]
    step = mean(rows).time
    for rank, time in found.waited_for.items():
        per_step = time / max(1, len(rows))
        section.rows.append([f"rank {rank}", format_time(per_step), format_share(per_step, step)])
    section.note = "How long each other rank waited in a collective because this one arrived last, per step."
    return section


def _link_section(found: Overview, top: int) -> Section:
    section = Section("Links", ["collective", "group", "bytes", "calls", "time", "bandwidth", ""])
    for link in found.links[:top]:
        row = [link.name, link.group, format_bytes(link.bytes), str(link.calls), format_time(link.time)]
        slow = "slow" if ranks.is_slow(link, found.links) else ""
        section.rows.append([*row, f"{link.bandwidth / 1e9:.2f} GB/s", slow])
    section.note = "From the arrival of the last rank. Slow: twice the median of the groups that do the same."
    return section


def _operator_section(found: Overview, top: int) -> Section:
    head = ["operator", "shapes", "calls", "time", "share", "GFLOP/s", "GB/s", "attainable"]
    section = Section("Operators by device time", head)
    whole = sum(work.time for work in found.operators)
    for work in found.operators[:top]:
        seconds = max(work.time, 1e-9) / 1e6
        limit = (
            "-"
            if found.limits is None
            else f"{100 * min(1.0, work.attainable(found.limits) / work.time):.0f} %"
        )
        rates = [f"{rate / seconds / 1e9:.1f}" if rate else "-" for rate in (work.flops, work.bytes)]
        figures = [str(work.calls), format_time(work.time), format_share(work.time, whole)]
        section.rows.append([work.name, work.shapes, *figures, *rates, limit])
    if found.limits is None:
        section.note = "Attainable: share of the device's limit; measure it here with --probe."
    else:
        rates = [f"{rate / 1e9:.0f} GFLOP/s ({name})" for name, rate in found.limits.flops.items()]
        section.note = f"This device attains {', '.join(rates)} and {found.limits.bandwidth / 1e9:.1f} GB/s."
    if not found.operators:
        section.note = "The trace has no shapes: profile with record_shapes=True."
    return section


def _path_section(found: Overview, top: int) -> Section:
    section = Section("Critical path", ["where", "time", "share"])
    whole = sum(found.critical_path.values())
    for name, time in list(found.critical_path.items())[:top]:
        section.rows.append([name, format_time(time), format_share(time, whole)])
    section.note = "What each step's end waited for: device work, or the host while the device had none."
    return section


def _memory_section(found: Overview) -> Section:
    section = Section("Memory", ["device", "peak allocated", "reserved", "at"])
    for peak in found.peaks:
        row = [f"device {peak.device}", format_bytes(peak.allocated), format_bytes(peak.reserved), peak.where]
        section.rows.append(row)
    section.line = Line(found.timeline, "allocated", format_bytes(found.peaks[0].allocated))
    return section
