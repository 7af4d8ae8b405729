"""The report of a job: steps, ranks, links, pipeline, operators against their limits, critical path, memory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median

from markupsafe import Markup

from isthmus_common.units import format_size
from isthmus_diagnostics.profile import charts, memory, ranks, vendor
from isthmus_diagnostics.profile.critical import critical_path
from isthmus_diagnostics.profile.detectors import Context
from isthmus_diagnostics.profile.ranks import Link
from isthmus_diagnostics.profile.report import Section, format_share, format_time
from isthmus_diagnostics.profile.roofline import Limits, Work, utilization, works
from isthmus_diagnostics.profile.steps import Breakdown, breakdown, mean
from isthmus_diagnostics.profile.timeline import RankStep, last_step, stages

_KINDS = ("compute", "exposed", "copies", "free")
_NAMES = {"exposed": "exposed communication", "sends": "sends and receives"}
_SLOW = 2.0  # times the median of the groups that do the same
_ROWS, _CELLS = 32, 64  # rows of a chart, and cells of a line of a heat map


@dataclass
class Overview:
    """The contents of the report; times in microseconds. Operators, path and memory are those of the first rank."""

    steps: dict[str, list[Breakdown]]
    """By rank."""
    waited_for: dict[str, float]
    """Time that other ranks waited for each rank in collectives, the slowest first."""
    links: list[Link]
    stages: dict[str, int]
    """Stage of a pipeline by rank; empty without one."""
    last_step: list[RankStep]
    operators: list[Work]
    limits: Limits | None
    mfu: float | None
    """Useful operations of matrix products and attention over the peak; None without a peak."""
    hfu: float | None
    """Executed operations, including recomputed ones, over the peak."""
    critical_path: dict[str, float]
    peaks: list[memory.Peak]
    timeline: list[tuple[float, float]] = field(default_factory=list)


def overview(contexts: list[Context], limits: Limits | None, peak: float | None) -> Overview:
    """Analyse the traces of all ranks.

    Args:
        contexts: one for each rank, at least one.
        limits: what the device attains, if known.
        peak: operations per second of the device; by default those of its fastest matrix product in limits.
    """
    traces, first = [context.trace for context in contexts], contexts[0]
    found = works(first.host, first.work, first.steps) or vendor.kernels(first.trace.path)
    peak = peak or (max(limits.flops.values()) if limits else None)
    mfu, hfu = utilization(found, first.steps, peak) if peak else (None, None)
    first.trace.memory = first.trace.memory or vendor.memory(first.trace.path)
    peaks = memory.peaks(first.trace, first.host)
    path = critical_path(first.host, first.work, first.steps)
    return Overview(
        steps={trace.name: vendor.breakdown(trace.path) or breakdown(trace) for trace in traces},
        waited_for=ranks.time_waited_for(first.waits),
        links=ranks.links(traces) or vendor.links(first.trace.path),
        stages=stages(contexts),
        last_step=last_step(contexts),
        operators=found,
        limits=limits,
        mfu=mfu,
        hfu=hfu,
        critical_path={f"{side}: {name}": time for (side, name), time in path.items()},
        peaks=peaks,
        timeline=memory.timeline(first.trace, peaks[0].device) if peaks else [],
    )


def facts(found: Overview) -> dict[str, str]:
    """Return the figures at the top of the page."""
    whole = mean([row for rows in found.steps.values() for row in rows])
    made = {"step": format_time(whole.time)}
    for name, time in (
        ("compute", whole.compute),
        ("exposed communication", whole.exposed),
        ("free", whole.free),
        ("pipeline bubble", whole.bubble),
    ):
        if time or name in ("compute", "free"):
            made[name] = format_share(time, whole.time)
    for name, share in (("MFU", found.mfu), ("HFU", found.hfu)):
        if share is not None:
            made[name] = format_share(share, 1.0)
    if found.peaks:
        made["peak memory"] = format_size(found.peaks[0].allocated)
    return made


def sections(found: Overview, top: int) -> list[Section]:
    """Return the report with at most ``top`` rows per table."""
    made = [_step_section(found, top)]
    if len(found.steps) > 1:
        made.append(_rank_section(found))
    if found.stages:
        made.append(_pipeline_section(found))
    if found.last_step:
        made.append(_timeline_section(found))
    if found.links:
        made.append(_link_section(found, top))
    made += [_operator_section(found, top), _path_section(found, top)]
    return [*made, *([_memory_section(found)] if found.peaks else [])]


def _cells(row: Breakdown) -> list[str]:
    shares = [
        f"{format_time(getattr(row, kind))} {format_share(getattr(row, kind), row.time)}" for kind in _KINDS
    ]
    return [format_time(row.time), *shares, format_time(row.overlapped), format_share(row.bubble, row.time)]


def _step_section(found: Overview, top: int) -> Section:
    head = ["step", "time", "compute", "exposed communication", "copies", "free", "overlapped", "bubble"]
    section = Section("Steps", head)
    drawn = []
    for rank, rows in found.steps.items():
        average = mean(rows)
        named = [(f"rank {rank}, mean", average)]
        if len(found.steps) == 1:
            named += [(f"step {row.step}", row) for row in rows[:top]]
        for name, row in named:
            section.rows.append([name, *_cells(row)])
            shares = [(100 * getattr(row, kind) / max(row.time, 1e-9), kind) for kind in _KINDS]
            drawn.append((name, charts.stack_bars(shares)))
    section.chart = charts.legend([(kind, _NAMES.get(kind, kind)) for kind in _KINDS]) + charts.bars(
        drawn[:_ROWS]
    )
    if found.mfu is not None and found.hfu is not None:
        section.note = (
            f"MFU {100 * found.mfu:.1f} %, HFU {100 * found.hfu:.1f} %, from the shapes in the trace."
        )
    return section


def _rank_section(found: Overview) -> Section:
    section = Section("Slow ranks", ["rank", "others waited", "share of the step", "compute", "free"])
    means = {name: mean(rows) for name, rows in found.steps.items()}
    step = mean(list(means.values())).time
    waited = {name: found.waited_for.get(name, 0.0) / len(found.steps[name]) for name in means}
    for name in sorted(means, key=lambda name: -waited[name]):
        row = [f"rank {name}", format_time(waited[name]), format_share(waited[name], step)]
        section.rows.append([*row, format_time(means[name].compute), format_time(means[name].free)])
    section.note = "How long the other ranks waited in collectives because this one arrived last, per step."
    kinds = {
        "others waited": waited,
        "compute": {name: row.compute for name, row in means.items()},
        "free": {name: row.free for name, row in means.items()},
    }
    rows = []
    for kind, times in kinds.items():
        usual = 0.0 if kind == "others waited" else median(times.values())
        cells = [((time - usual) / step, f"rank {name}: {format_time(time)}") for name, time in times.items()]
        rows.append((kind, cells))
    words = "Each cell is a rank; strongest where it exceeds the median rank by a whole step."
    section.chart = charts.heat(rows, min(_CELLS, len(means))) + Markup("<p>{}</p>").format(words)
    return section


def _pipeline_section(found: Overview) -> Section:
    section = Section("Pipeline", ["stage", "ranks", "compute", "exposed communication", "bubble", "free"])
    by_stage: dict[int, list[str]] = defaultdict(list)
    for name, stage in found.stages.items():
        by_stage[stage].append(name)
    drawn = []
    for stage, names in sorted(by_stage.items()):
        row = mean([row for name in names for row in found.steps[name]])
        kinds = (row.compute, row.exposed, row.bubble, row.free)
        shares = [f"{format_time(time)} {format_share(time, row.time)}" for time in kinds]
        section.rows.append([f"stage {stage}", ", ".join(names), *shares])
        parts = [(row.compute, "compute"), (row.exposed - row.bubble, "exposed"), (row.bubble, "sends")]
        drawn.append(
            (
                f"stage {stage}",
                charts.stack_bars([(100 * time / max(row.time, 1e-9), kind) for time, kind in parts]),
            )
        )
    named = [("compute", "compute"), ("exposed", "exposed collectives"), ("sends", "bubble")]
    section.chart = charts.legend(named) + charts.bars(drawn)
    section.note = "Bubble: only sends and receives ran, which wait for another stage."
    return section


def _timeline_section(found: Overview) -> Section:
    section = Section("The last step by rank", ["rank", "begins", "time"])
    whole = max(row.start + row.time for row in found.last_step)
    drawn = []
    for row in found.last_step:
        label = f"rank {row.name}" + ("" if row.stage is None else f", stage {row.stage}")
        section.rows.append([label, format_time(row.start), format_time(row.time)])
        parts = [
            (100 * start / whole, 100 * time / whole, kind)
            for kind, periods in row.work.items()
            for start, time in periods
        ]
        drawn.append((label, parts))
    seen = [kind for kind in found.last_step[0].work if any(row.work[kind] for row in found.last_step)]
    section.chart = charts.legend([(kind, _NAMES.get(kind, kind)) for kind in seen]) + charts.bars(drawn)
    section.note = f"The axis is {format_time(whole)} long."
    return section


def _link_section(found: Overview, top: int) -> Section:
    section = Section("Links", ["collective", "group", "bytes", "calls", "time", "bandwidth", ""])
    for link in found.links[:top]:
        row = [link.name, link.group, format_size(link.bytes), str(link.calls), format_time(link.time)]
        slow = "slow" if ranks.slowness(link, found.links) > _SLOW else ""
        section.rows.append([*row, f"{link.bandwidth / 1e9:.2f} GB/s", slow])
    section.note = "From the arrival of the last rank. Slow: twice the median of the groups that do the same."
    pairs = ranks.pairs(found.links)
    members = sorted({rank for pair in pairs for rank in pair})
    if 2 < len(members) <= _CELLS:
        rows = [
            (f"rank {one}", [_link_cell(one, other, pairs.get((one, other))) for other in members])
            for one in members
        ]
        words = "Each cell is a pair of ranks; strongest where its fastest group takes twice the median."
        section.chart = charts.heat(rows, len(members)) + Markup("<p>{}</p>").format(words)
    return section


def _link_cell(one: int, other: int, slow: float | None) -> tuple[float, str]:
    if slow is None:
        return 0.0, f"ranks {one} and {other}: no common group"
    return slow - 1.0, f"ranks {one} and {other}: {slow:.2f} times the median"


def _operator_section(found: Overview, top: int) -> Section:
    head = ["operator", "shapes", "calls", "time", "share", "GFLOP/s", "GB/s", "attainable"]
    section = Section("Operators by device time", head)
    whole = sum(work.time for work in found.operators)
    for work in found.operators[:top]:
        seconds = max(work.time, 1e-9) / 1e6
        limit = (
            "-"
            if found.limits is None
            else f"{100 * min(1.0, work.attainable_time(found.limits) / work.time):.0f} %"
        )
        rates = [f"{rate / seconds / 1e9:.1f}" if rate else "-" for rate in (work.flops, work.bytes)]
        figures = [str(work.calls), format_time(work.time), format_share(work.time, whole)]
        section.rows.append([work.name, work.shapes, *figures, *rates, limit])
    if found.limits is None:
        section.note = "Attainable: share of the device's limit; measure it here with --probe."
    else:
        rates = [f"{rate / 1e9:.0f} GFLOP/s ({name})" for name, rate in found.limits.flops.items()]
        section.note = f"This device attains {', '.join(rates)} and {found.limits.bandwidth / 1e9:.1f} GB/s."
    if found.limits:
        points = [
            (
                number,
                work.flops / work.bytes,
                1e6 * work.flops / work.time,
                work.time / whole,
                f"{work.name} {work.shapes}",
            )
            for number, work in enumerate(found.operators[:top], 1)
            if work.flops and work.bytes and work.time
        ]
        rate = max(found.limits.flops.values())
        section.chart = charts.roofline(points, rate, found.limits.bandwidth)
        section.note += " In the chart: rows of the table by number."
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
        row = [f"device {peak.device}", format_size(peak.allocated), format_size(peak.reserved), peak.where]
        section.rows.append(row)
    span = format_time(found.timeline[-1][0] - found.timeline[0][0])
    high = f"{format_size(found.peaks[0].allocated)} allocated"
    section.chart = charts.curve(found.timeline, "0", high, "0 s", span)
    return section
