"""Analysis of a trace: the hottest operators and kernels, idle time of the device, runtime calls."""

import re
from collections import defaultdict
from dataclasses import dataclass

from isthmus_diagnostics.profile.host import ADDRESS
from isthmus_diagnostics.profile.intervals import Intervals, length, union
from isthmus_diagnostics.profile.operators import Total, kernel_totals, mean_totals, operator_totals
from isthmus_diagnostics.profile.report import Section, format_share, format_time
from isthmus_diagnostics.profile.steps import steps
from isthmus_diagnostics.profile.trace import Event, Row, Trace

NOTHING = "(no operator)"

# Runtime calls that slow a step down when there are many, by the vendors' names for them.
_CALLS = {
    "setDevice": re.compile(r"set_?device|setcurrentcontext|ctxsetcurrent", re.IGNORECASE),
    "synchronize": re.compile(r"synchroni[sz]e", re.IGNORECASE),
    "memcpy": re.compile(r"memcpy", re.IGNORECASE),
    "malloc and free": re.compile(r"malloc|memalloc|free|memcreate|mem(un)?map", re.IGNORECASE),
    "launch": re.compile(r"launch", re.IGNORECASE),
}


@dataclass
class Gap:
    """A period in which all streams of a device were idle."""

    device: str
    start: float
    end: float
    host: str = NOTHING
    """The innermost operator, call or frame on the host in the middle of the gap."""

    @property
    def duration(self) -> float:
        """Length in microseconds."""
        return self.end - self.start


@dataclass
class Hot:
    """The analysis of one trace; times in microseconds."""

    span: float
    busy: dict[str, float]
    """Time in which any stream of a device was busy, by device."""
    operators: dict[str, Total]
    kernels: dict[str, Total]
    gaps: list[Gap]
    calls: dict[str, Total]


def analyse(trace: Trace) -> Hot:
    """Analyse a trace."""
    start, end = trace.window()
    gaps: list[Gap] = []
    busy: dict[str, float] = {}
    for device, periods in sorted(_busy_periods(trace.device).items()):
        busy[device] = length(periods)
        gaps += _gaps(device, periods, start, end)
    _name_gaps(gaps, trace)
    return Hot(end - start, busy, operator_totals(trace), kernel_totals(trace), gaps, call_totals(trace))


def mean_analysis(traces: list[Trace]) -> Hot:
    """Analyse the traces of several ranks; figures are those of the mean rank and step."""
    found = [analyse(trace) for trace in traces]
    parts = float(sum(len(steps(trace)) for trace in traces))
    busy: dict[str, float] = {}
    for each in found:
        for device, time in each.busy.items():
            busy[device] = busy.get(device, 0.0) + time / parts
    operators = mean_totals([each.operators for each in found], parts)
    kernels = mean_totals([each.kernels for each in found], parts)
    calls = mean_totals([each.calls for each in found], parts)
    return Hot(sum(each.span for each in found) / parts, busy, operators, kernels, [], calls)


def call_totals(trace: Trace) -> dict[str, Total]:
    """Return the runtime calls by kind, including kinds without a call."""
    totals = {name: Total() for name in _CALLS}
    for event in trace.runtime:
        for name, pattern in _CALLS.items():
            if pattern.search(event.name):
                totals[name].calls += 1
                totals[name].host_time += event.duration
                break
    return totals


def _busy_periods(events: list[Event]) -> dict[str, Intervals]:
    """Return the union of the busy periods of all streams, by device."""
    periods: dict[str, Intervals] = defaultdict(list)
    for event in events:
        periods[event.row[0]].append((event.start, event.end))
    return {device: union(found) for device, found in periods.items()}


def _gaps(device: str, periods: Intervals, start: float, end: float) -> list[Gap]:
    edges = [start, *(edge for period in periods for edge in period), end]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [Gap(device, first, last) for first, last in pairs if last > first]


def _name_gaps(gaps: list[Gap], trace: Trace) -> None:
    """Name each gap by the operator or call on the host in its middle, else by the Python frame."""
    ordered = sorted(gaps, key=lambda gap: gap.start + gap.end)
    inner = sorted([*trace.operators, *trace.runtime], key=lambda event: (event.start, -event.duration))
    for events in (trace.frames, inner):  # operators and calls replace frames
        _name_by(ordered, events)


def _name_by(gaps: list[Gap], events: list[Event]) -> None:
    running: dict[Row, list[Event]] = defaultdict(list)
    following = iter(events)
    event = next(following, None)
    for gap in gaps:
        middle = (gap.start + gap.end) / 2
        while event is not None and event.start <= middle:
            stack = running[event.row]
            while stack and stack[-1].end <= event.start:
                stack.pop()
            stack.append(event)
            event = next(following, None)
        innermost = [found for stack in running.values() if (found := _last_running(stack, middle))]
        if innermost:
            name = min(innermost, key=lambda found: found.duration).name
            gap.host = ADDRESS.sub("", name)  # group the same function of different objects


def _last_running(stack: list[Event], time: float) -> Event | None:
    while stack and stack[-1].end <= time:
        stack.pop()
    return stack[-1] if stack else None


def sections(hot: Hot, top: int) -> list[Section]:
    """Return the report with at most ``top`` rows per table."""
    return [
        _device_section(hot),
        _total_section("Operators by device time", hot.operators, top),
        _total_section("Kernels and copies", hot.kernels, top),
        _idle_section(hot, top),
        _gap_section(hot, top),
        _call_section(hot),
    ]


def _device_section(hot: Hot) -> Section:
    section = Section("Devices", ["device", "busy", "idle", "busy share"])
    for device, busy in hot.busy.items():
        row = [device, format_time(busy), format_time(hot.span - busy), format_share(busy, hot.span)]
        section.rows.append(row)
    section.note = f"The trace covers {format_time(hot.span)}."
    if not hot.busy:
        section.note += " It has no device events: profile with ProfilerActivity.CUDA or PrivateUse1."
    return section


def _total_section(title: str, totals: dict[str, Total], top: int) -> Section:
    whole = sum(total.self_time for total in totals.values())
    section = Section(title, ["name", "self", "share", "total", "calls", "mean"])
    ranked = sorted(totals.items(), key=lambda item: item[1].self_time, reverse=True)
    shown = [item for item in ranked if item[1].time > 0][:top]
    for name, total in shown:
        section.rows.append(
            [
                name,
                format_time(total.self_time),
                format_share(total.self_time, whole),
                format_time(total.time),
                str(total.calls),
                format_time(total.self_time / total.calls),
            ]
        )
    section.note = f"{len(shown)} of {len(totals)} shown; device time of all: {format_time(whole)}."
    return section


def _idle_section(hot: Hot, top: int) -> Section:
    by_host: dict[str, list[float]] = defaultdict(list)
    for gap in hot.gaps:
        by_host[gap.host].append(gap.duration)
    idle = sum(gap.duration for gap in hot.gaps)
    section = Section("Idle time by host activity", ["host", "idle", "share", "gaps", "longest"])
    for name, times in sorted(by_host.items(), key=lambda item: sum(item[1]), reverse=True)[:top]:
        total = sum(times)
        figures = [format_time(total), format_share(total, idle), str(len(times)), format_time(max(times))]
        section.rows.append([name, *figures])
    return section


def _gap_section(hot: Hot, top: int) -> Section:
    section = Section("Longest gaps", ["host", "device", "at", "length"])
    start = min((gap.start for gap in hot.gaps), default=0.0)
    for gap in sorted(hot.gaps, key=lambda gap: gap.duration, reverse=True)[:top]:
        row = [gap.host, gap.device, format_time(gap.start - start), format_time(gap.duration)]
        section.rows.append(row)
    section.note = "Times are relative to the first gap."
    return section


def _call_section(hot: Hot) -> Section:
    section = Section("Runtime calls", ["call", "calls", "host time"])
    for name, total in hot.calls.items():
        section.rows.append([name, str(total.calls), format_time(total.host_time)])
    section.note = "A steady step needs no setDevice and few synchronizations."
    return section
