"""The critical path of steps: what the end of a step waited for, followed back to its start."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict

from isthmus_diagnostics.profile.host import ADDRESS, Host
from isthmus_diagnostics.profile.steps import Step
from isthmus_diagnostics.profile.trace import Event, Row

_WAIT = re.compile(r"synchroni[sz]e", re.IGNORECASE)

Times = dict[tuple[str, str], float]
"""Microseconds on the path by ("device" or "host", name)."""


def critical_path(host: Host, work: list[Event], steps: list[Step]) -> Times:
    """Return the time on the critical path of the steps, the longest first; the times add up to that of the steps."""
    path = _Path(host, work)
    for step in steps:
        path.follow(step)
    return dict(sorted(path.times.items(), key=lambda item: -item[1]))


class _Path:
    """Follows dependencies backwards in time: the order of a stream, launches, and waits for the device."""

    def __init__(self, host: Host, work: list[Event]) -> None:
        self.times: Times = defaultdict(float)
        self._host = host
        self._streams: dict[Row, list[Event]] = defaultdict(list)
        for event in work:
            self._streams[event.row].append(event)
        self._waits = sorted(self._find_waits(work), key=lambda wait: wait[0])

    def _find_waits(self, work: list[Event]) -> list[tuple[float, Event]]:
        """Return when the host continued after device work that it had waited for, and that work."""
        by_end = sorted(work, key=lambda event: event.end)
        waits = []
        for call in self._host.events:
            last = bisect_right(by_end, call.end, key=lambda event: event.end) - 1
            if _WAIT.search(call.name) and last >= 0 and by_end[last].end > call.start:
                waits.append((call.end, by_end[last]))
        for event in work:
            launch = self._host.launch(event)
            if launch is not None and event.end <= self._host.events[launch].end:  # in the calling thread
                waits.append((self._host.events[launch].end, event))
        return waits

    def follow(self, step: Step) -> None:
        """Add a step's time to what is on its critical path."""
        time = step.end
        event: Event | None = None
        while time > step.start:
            if event is None:
                event, until = self._waited_for(time)
                until = max(until, step.start)
                self._add_host(until, time)
            else:
                until = max(event.start, step.start)
                self.times["device", event.name] += time - until
                event, until = self._find_predecessor(event, until)
                until = max(until, step.start)
            time = until

    def _waited_for(self, time: float) -> tuple[Event | None, float]:
        """Return the device work that the host last waited for before a time, and its end."""
        place = bisect_right(self._waits, time, key=lambda wait: wait[0])
        for _, event in reversed(self._waits[:place]):
            if event.start < time:
                return event, min(event.end, time)
        return None, float("-inf")

    def _find_predecessor(self, event: Event, time: float) -> tuple[Event | None, float]:
        """Return what work followed: earlier work of its stream, or else the host at its launch; and since when."""
        stream = self._streams[event.row]
        place = bisect_left(stream, event.start, key=lambda other: other.start) - 1
        launch = self._host.launch(event)
        launched = time if launch is None else min(time, self._host.events[launch].start)
        if place >= 0 and stream[place].end > launched and stream[place].start < time:
            until = min(stream[place].end, time)
            self.times["device", "(between kernels of a stream)"] += time - until
            return stream[place], until
        self.times["host", "(launch)"] += time - launched
        return None, launched

    def _add_host(self, start: float, end: float) -> None:
        index = self._host.at((start + end) / 2)
        name = "(no operator)" if index is None else self._host.events[self._host.operator(index)].name
        self.times["host", ADDRESS.sub("", name)] += end - start
