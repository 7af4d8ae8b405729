"""Device time of each step: compute, communication, copies, free."""

import re
from dataclasses import dataclass

from isthmus_diagnostics.profile.intervals import Intervals, clip, length, minus, union
from isthmus_diagnostics.profile.trace import Event, Trace

_STEP = re.compile(r"ProfilerStep#(\d+)")
_COMMUNICATION = re.compile(r"^(nccl|rccl|hccl|hcom_|chip:|oneccl|xccl)|nccldevkernel", re.IGNORECASE)
_COPY = re.compile(r"^mem(cpy|set)", re.IGNORECASE)
_POINT_TO_POINT = re.compile(r"send|recv|receive", re.IGNORECASE)


@dataclass(frozen=True)
class Step:
    """A step of the profiler's schedule, or the whole trace if it has none."""

    number: int
    start: float
    end: float


@dataclass
class Breakdown:
    """The time of one step in microseconds: compute + exposed + copies + free = time."""

    step: int
    time: float
    compute: float
    exposed: float
    """Communication during which nothing was computed."""
    overlapped: float
    """Communication during which something was computed."""
    copies: float
    """Copies during which nothing was computed or communicated."""
    free: float
    bubble: float
    """Part of exposed in which only sends and receives ran: a pipeline's bubble."""


@dataclass
class Busy:
    """The intervals in which a device was busy, by kind."""

    compute: Intervals
    communication: Intervals
    point_to_point: Intervals
    copies: Intervals

    @property
    def all(self) -> Intervals:
        """The intervals in which the device was busy with anything."""
        return union(self.compute, self.communication, self.copies)


def is_communication(event: Event) -> bool:
    """Return whether device work is a collective, a send or a receive."""
    return "Collective name" in event.args or bool(_COMMUNICATION.search(event.name))


def is_point_to_point(event: Event) -> bool:
    """Return whether communication is a send or a receive; NCCL exchanges all to all by kernels named so too."""
    return bool(_POINT_TO_POINT.search(str(event.args.get("Collective name") or event.name)))


def is_copy(event: Event) -> bool:
    """Return whether device work is a copy or a fill."""
    return bool(_COPY.search(event.name))


def steps(trace: Trace) -> list[Step]:
    """Return the steps of a trace."""
    found = {}
    for event in [*trace.frames, *trace.operators]:
        if match := _STEP.fullmatch(event.name):
            found[int(match[1])] = Step(int(match[1]), event.start, event.end)
    return [found[number] for number in sorted(found)] or [Step(0, *trace.window())]


def busy_periods(work: list[Event]) -> Busy:
    """Return when a device was busy."""
    kinds: dict[str, list[tuple[float, float]]] = {"compute": [], "communication": [], "copies": []}
    point_to_point = []
    for event in work:
        kind = "communication" if is_communication(event) else "copies" if is_copy(event) else "compute"
        kinds[kind].append((event.start, event.end))
        if kind == "communication" and is_point_to_point(event):
            point_to_point.append((event.start, event.end))
    unions = {kind: union(intervals) for kind, intervals in kinds.items()}
    return Busy(**unions, point_to_point=union(point_to_point))


def breakdown(trace: Trace) -> list[Breakdown]:
    """Return where the time of each step went."""
    kinds = busy_periods(trace.device)
    return [_of_step(step, kinds) for step in steps(trace)]


def _of_step(step: Step, kinds: Busy) -> Breakdown:
    compute, communication, sends, copies = (
        clip(intervals, step.start, step.end)
        for intervals in (kinds.compute, kinds.communication, kinds.point_to_point, kinds.copies)
    )
    exposed = minus(communication, compute)
    time = step.end - step.start
    alone = length(minus(copies, union(compute, communication)))
    collectives = minus(communication, sends)
    return Breakdown(
        step=step.number,
        time=time,
        compute=length(compute),
        exposed=length(exposed),
        overlapped=length(communication) - length(exposed),
        copies=alone,
        free=time - length(compute) - length(exposed) - alone,
        bubble=length(minus(minus(sends, compute), collectives)),
    )


def mean(rows: list[Breakdown]) -> Breakdown:
    """Return the mean over steps."""
    names = ("time", "compute", "exposed", "overlapped", "copies", "free", "bubble")
    return Breakdown(len(rows), *(sum(getattr(row, name) for row in rows) / len(rows) for name in names))
