"""Detectors: what the rules of ``isthmus profile advise`` look for, each with the parameters that a rule gives it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from isthmus_diagnostics.profile.host import Host
from isthmus_diagnostics.profile.intervals import Intervals, clip, minus, union
from isthmus_diagnostics.profile.ranks import Wait, time_waited_for, waits
from isthmus_diagnostics.profile.steps import Step, busy_periods, is_communication, is_copy, steps
from isthmus_diagnostics.profile.trace import Event, Trace

BACKWARD = re.compile(r"^autograd::engine")


@dataclass
class Hit:
    """One occurrence: the time at stake, and the event of the host that caused it."""

    time: Intervals
    cause: int | None
    label: str = ""
    """Says where, if no line of the user's code does."""


class Context:
    """One trace, indexed for the analyses; ``waits`` are those of all ranks."""

    def __init__(self, trace: Trace, waits: list[Wait], sources: list[Path]) -> None:
        self.trace = trace
        self.waits = waits
        self.host = Host(trace, sources)
        self.steps = steps(trace)
        self.work = trace.device
        self.busy = busy_periods(self.work)
        self.idle: Intervals = minus([(step.start, step.end) for step in self.steps], self.busy.all)
        self._starts = sorted(event.start for event in self.work)

    @classmethod
    def of_traces(cls, traces: list[Trace], sources: list[Path]) -> list[Context]:
        """Index the traces of all ranks; ``sources`` are folders of the user's code."""
        found = waits(traces)
        return [cls(trace, found, sources) for trace in traces]

    def step_of(self, event: Event) -> Step | None:
        """Return the step in which an event began."""
        return next((step for step in self.steps if step.start <= event.start < step.end), None)

    def idle_until_work(self, event: Event) -> Intervals:
        """Return when the device was idle between the start of an event and the first work after its end."""
        place = bisect_left(self._starts, event.end)
        end = self._starts[place] if place < len(self._starts) else event.end
        return clip(self.idle, event.start, max(end, event.end))

    def exposed_time(self, event: Event) -> Intervals:
        """Return when the device was idle during an event of the host."""
        return clip(self.idle, event.start, event.end)

    def launched_and_exposed(self, index: int) -> Intervals:
        """Return the device work launched during an event of the host, and the device's idle time during it."""
        work = [(event.start, event.end) for event in self.host.launched_work(index)]
        return union(self.exposed_time(self.host.events[index]), work)

    def matching_events(self, pattern: str) -> Iterator[int]:
        """Return the events of the host within steps whose name matches, without those inside another match."""
        found = re.compile(pattern)
        for index, event in enumerate(self.host.events):
            if found.search(event.name) and self.step_of(event) and not self.host.is_inside(index, found):
                yield index


def calls(context: Context, match: str, outside: str = "^$", waits: bool = False) -> Iterator[Hit]:
    """Find events of the host by name: the idle time of the device that they cause.

    Args:
        context: the trace.
        match: pattern of their names.
        outside: pattern of events that they must not be in.
        waits: count the idle time up to the next work too, since the host could not launch ahead.
    """
    without = re.compile(outside)
    for index in context.matching_events(match):
        event = context.host.events[index]
        if not context.host.is_inside(index, without):
            yield Hit(context.idle_until_work(event) if waits else context.exposed_time(event), index)


def operators(context: Context, match: str, backward: bool = False) -> Iterator[Hit]:
    """Find operators by name: the time of their device work, and the idle time while they were called."""
    for index in context.matching_events(match):
        if backward or not context.host.is_inside(index, BACKWARD):
            yield Hit(context.launched_and_exposed(index), index)


def regions(context: Context, match: str, launches: int, without: str) -> Iterator[Hit]:
    """Find marks in which ``launches`` kernels or more were launched, and no operator whose name matches ``without``.

    The first group of ``match`` is the name of a class.
    """
    fused = re.compile(without)
    for index in context.matching_events(match):
        if len(context.host.launched_work(index)) >= launches and not context.host.has(index, fused):
            name = re.search(match, context.host.events[index].name)
            yield Hit(
                context.launched_and_exposed(index),
                index,
                context.host.made_by(index, name[1]) if name else "",
            )


def copies(context: Context, match: str, bytes: int, outside: str) -> Iterator[Hit]:
    """Find copies between host and device of at most ``bytes``, not inside certain events."""
    name, without = re.compile(match), re.compile(outside)
    for work in context.work:
        size, launch = work.args.get("bytes"), context.host.launch(work)
        if not name.search(work.name) or size is None or launch is None or size > bytes:
            continue
        index = context.host.operator(launch)
        if not context.host.is_inside(launch, without) and context.step_of(context.host.events[index]):
            yield Hit(context.launched_and_exposed(index), index)


def sequences(context: Context, match: str) -> Iterator[Hit]:
    """Find operators that follow each other: ``match`` is a pattern of their names, each with a space behind it."""
    skipped = re.compile(r"^aten::(to|_to_copy|view|reshape|expand|t|transpose|unsqueeze|empty\w*)$")
    outermost = [
        index
        for index in context.matching_events("^aten::")
        if not skipped.search(context.host.events[index].name) and not context.host.is_inside(index, BACKWARD)
    ]
    names = "".join(f"{context.host.events[index].name.removeprefix('aten::')} " for index in outermost)
    for found in re.finditer(match, names):
        first = names.count(" ", 0, found.start())
        members = outermost[first : first + found[0].count(" ")]
        yield Hit(union(*map(context.launched_and_exposed, members)), members[0])


def idle(context: Context, least: float, outside: str) -> Iterator[Hit]:
    """Find idle time of the device while the host prepared work, in gaps shorter than ``least`` microseconds."""
    without = re.compile(outside)
    for start, end in context.idle:
        index = context.host.at((start + end) / 2) if end - start < least else None
        if index is None:
            continue
        if not without.search(context.host.events[index].name) and not context.host.is_inside(index, without):
            yield Hit([(start, end)], index)


def exposed(context: Context) -> Iterator[Hit]:
    """Find communication during which nothing was computed."""
    for work in context.work:
        if is_communication(work):
            launch = context.host.launch(work)
            yield Hit(minus([(work.start, work.end)], context.busy.compute), launch, work.name)


def fallbacks(context: Context) -> Iterator[Hit]:
    """Find operators that ran on the CPU: they copied from the device and back to it."""
    directions: dict[int, set[str]] = {}
    for work in context.work:
        launch = context.host.launch(work) if is_copy(work) else None
        operator = None if launch is None else _innermost_operator(context.host, launch)
        if operator is not None:
            directions.setdefault(operator, set()).add(work.name.split("(")[0].strip()[-4:])
    for index, found in sorted(directions.items()):
        if {"DtoH", "HtoD"} <= found and context.step_of(context.host.events[index]):
            yield Hit(context.launched_and_exposed(index), index, context.host.events[index].name)


def _innermost_operator(host: Host, index: int) -> int | None:
    """Return the operator that made a copy, above the copy itself."""
    own = re.compile(r"^aten::(_?to(_copy|_cpu)?|copy_|_copy_from\w*)$")
    for outer in (index, *host.ancestors(index)):
        name = host.events[outer].name
        if name.startswith("aten::") and not own.search(name):
            return outer
    return None


def unbalanced(context: Context, lead: float) -> Iterator[Hit]:
    """Find collectives in which this rank waited idly for the slowest one, by more than ``lead`` microseconds."""
    slow = next(iter(time_waited_for(context.waits)), "")
    for wait in context.waits:
        if wait.rank == context.trace.name and wait.last == slow and wait.time > lead:
            time = [(wait.event.start, min(wait.event.start + wait.time, wait.event.end))]
            yield Hit(
                minus(time, context.busy.compute),
                context.host.launch(wait.event),
                f"rank {wait.last} arrives last",
            )


DETECTORS: dict[str, Callable[..., Iterator[Hit]]] = {
    function.__name__: function
    for function in (calls, operators, regions, copies, sequences, idle, exposed, fallbacks, unbalanced)
}
