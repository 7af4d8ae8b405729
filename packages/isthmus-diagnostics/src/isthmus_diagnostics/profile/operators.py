"""Attribution of device work to operators, and totals by name."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from isthmus_diagnostics.profile.trace import Event, Row, Trace


@dataclass
class Total:
    """Totals of all calls of one name, in microseconds."""

    calls: float = 0
    time: float = 0.0
    """Device time for kernels and operators, host time for runtime calls."""
    self_time: float = 0.0
    """Time without nested operators."""
    host_time: float = 0.0
    kernels: set[str] = field(default_factory=set)

    def add_work(self, work: Event) -> None:
        """Count device work."""
        self.calls += 1
        self.time += work.duration
        self.self_time += work.duration


def mean_totals(found: list[dict[str, Total]], parts: float) -> dict[str, Total]:
    """Return the sum of several totals over a number of parts, such as ranks and steps."""
    made: dict[str, Total] = defaultdict(Total)
    for totals in found:
        for name, total in totals.items():
            mean = made[name]
            mean.calls += total.calls / parts
            mean.time += total.time / parts
            mean.self_time += total.self_time / parts
            mean.host_time += total.host_time / parts
            mean.kernels |= total.kernels
    return dict(made)


def kernel_totals(trace: Trace) -> dict[str, Total]:
    """Return totals of device work by name."""
    totals: dict[str, Total] = defaultdict(Total)
    for event in trace.device:
        totals[event.name].add_work(event)
    return dict(totals)


def operator_totals(trace: Trace) -> dict[str, Total]:
    """Return totals of operators by name, with the device time of what they and nested operators launched."""
    parents = enclosing_events(trace.operators)
    launched = _launched_work(trace, parents)
    totals: dict[str, Total] = defaultdict(Total)
    for index, event in enumerate(trace.operators):
        outer = _names_around(trace.operators, parents, index)
        total = totals[event.name]
        total.calls += 1
        if event.name not in outer:
            total.host_time += event.duration
        for kernel in launched.get(index, ()):
            total.self_time += kernel.duration
            for name in {event.name, *outer}:
                totals[name].time += kernel.duration
                totals[name].kernels.add(kernel.name)
    return dict(totals)


def enclosing_events(events: list[Event]) -> list[int]:
    """Return for each event the index of the innermost event around it on its row, or -1."""
    stacks: dict[Row, list[int]] = defaultdict(list)
    parents = []
    for index, event in enumerate(events):
        stack = stacks[event.row]
        while stack and events[stack[-1]].end <= event.start:
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(index)
    return parents


def _names_around(events: list[Event], parents: list[int], index: int) -> set[str]:
    names = set()
    while (index := parents[index]) >= 0:
        names.add(events[index].name)
    return names


def _launched_work(trace: Trace, parents: list[int]) -> dict[int, list[Event]]:
    """Return device work by the index of its operator."""
    by_id = {event.external: index for index, event in enumerate(trace.operators) if event.external}
    arrows = _Arrows(trace, parents)
    found: dict[int, list[Event]] = defaultdict(list)
    for kernel in trace.device:
        index = by_id.get(kernel.external) if kernel.external else arrows.operator_of(kernel)
        if index is not None:
            found[index].append(kernel)
    return found


class _Arrows:
    """Operators of kernels by flow arrows, for traces that do not name the operator of a kernel."""

    def __init__(self, trace: Trace, parents: list[int]) -> None:
        starts = {flow.key: flow for flow in trace.flow_starts}
        self._origin = {
            (flow.row, flow.time): starts[flow.key] for flow in trace.flow_ends if flow.key in starts
        }
        self._operators = trace.operators
        self._parents = parents
        self._rows: dict[Row, list[int]] = defaultdict(list)
        for index, event in enumerate(trace.operators):
            self._rows[event.row].append(index)

    def operator_of(self, kernel: Event) -> int | None:
        """Return the index of the innermost operator where the arrow begins, or None."""
        flow = self._origin.get((kernel.row, kernel.start))
        if flow is None:
            return None
        row = self._rows.get(flow.row, [])
        place = bisect_right(row, flow.time, key=lambda index: self._operators[index].start)
        index = row[place - 1] if place else -1
        while index >= 0 and self._operators[index].end < flow.time:
            index = self._parents[index]
        return index if index >= 0 else None
