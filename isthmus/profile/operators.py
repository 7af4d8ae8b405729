"""Which operator caused which work of the device, and what each took in all."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from isthmus.profile.trace import Event, Row, Trace


@dataclass
class Total:
    """What all calls of one name took, in microseconds."""

    calls: int = 0
    time: float = 0.0
    """On the device for kernels and operators, on the host for calls of the runtime."""
    self_time: float = 0.0
    """Without what inner operators took; kernels have none."""
    host_time: float = 0.0
    kernels: set[str] = field(default_factory=set)


def kernel_totals(trace: Trace) -> dict[str, Total]:
    """Work of the device by its name."""
    totals: dict[str, Total] = defaultdict(Total)
    for event in trace.device:
        total = totals[event.name]
        total.calls += 1
        total.time += event.duration
        total.self_time += event.duration
    return dict(totals)


def operator_totals(trace: Trace) -> dict[str, Total]:
    """Operators by name, with the device time of what they and the operators inside them launched."""
    parents = enclosing(trace.operators)
    launched = _launched(trace, parents)
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


def enclosing(events: list[Event]) -> list[int]:
    """For each of a trace's events the place of the innermost one around it on its row; -1 if there is none."""
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


def _launched(trace: Trace, parents: list[int]) -> dict[int, list[Event]]:
    """Work of the device by the place of its operator in the trace."""
    by_id = {event.external: index for index, event in enumerate(trace.operators) if event.external}
    arrows = _Arrows(trace, parents)
    found: dict[int, list[Event]] = defaultdict(list)
    for kernel in trace.device:
        index = by_id.get(kernel.external) if kernel.external else arrows.operator_of(kernel)
        if index is not None:
            found[index].append(kernel)
    return found


class _Arrows:
    """The way back along a flow arrow: for traces that do not name the operator of a kernel."""

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
        """Place of the innermost operator that runs where the arrow begins; None without one."""
        flow = self._origin.get((kernel.row, kernel.start))
        if flow is None:
            return None
        row = self._rows.get(flow.row, [])
        place = bisect_right(row, flow.time, key=lambda index: self._operators[index].start)
        index = row[place - 1] if place else -1
        while index >= 0 and self._operators[index].end < flow.time:
            index = self._parents[index]
        return index if index >= 0 else None
