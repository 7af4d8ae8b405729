"""One step of all ranks on one axis of time, and the stages of a pipeline."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from isthmus_diagnostics.profile.detectors import BACKWARD, Context
from isthmus_diagnostics.profile.intervals import Intervals, clip, minus, union
from isthmus_diagnostics.profile.ranks import group_of
from isthmus_diagnostics.profile.steps import Step, is_communication, is_copy, is_point_to_point
from isthmus_diagnostics.profile.trace import Event, ranks_of

_KINDS = (
    "forward",
    "backward",
    "collectives",
    "sends",
    "copies",
)  # each is shown only where none before it ran
_POINTS = 500  # points of a row
ROWS = 32  # rows of a chart


@dataclass
class RankStep:
    """A rank in one step: (start, duration) in microseconds from the start of the axis, by kind of work."""

    name: str
    stage: int | None
    """Stage of a pipeline."""
    start: float
    """Of the step."""
    time: float
    work: dict[str, Intervals]


def stages(contexts: list[Context]) -> dict[str, int]:
    """Return the stage of each rank that sends or receives: its place in the group that it does so in."""
    found = {}
    for context in contexts:
        trace = context.trace
        groups = Counter(
            tuple(ranks_of(group_of(event, trace)))
            for event in trace.device
            if is_communication(event) and is_point_to_point(event)
        )
        for group, _ in groups.most_common(1):
            if trace.rank in group:
                found[trace.name] = group.index(trace.rank)
    return found


def last_step(contexts: list[Context]) -> list[RankStep]:
    """Return the last step that all ranks have, by stage and rank.

    If the steps overlap, the clocks of the nodes are taken to agree; else each row begins with its step.
    """
    common = set.intersection(*({step.number for step in context.steps} for context in contexts))
    if not common:
        return []
    periods = [next(step for step in context.steps if step.number == max(common)) for context in contexts]
    first = min(step.start for step in periods)
    agree = max(step.start for step in periods) < min(step.end for step in periods)
    place = stages(contexts)
    rows = [
        _row(context, step, first if agree else step.start, place.get(context.trace.name))
        for context, step in zip(contexts[:ROWS], periods, strict=False)
    ]
    return sorted(rows, key=lambda row: -1 if row.stage is None else row.stage)


def _row(context: Context, step: Step, origin: float, stage: int | None) -> RankStep:
    kinds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in context.work:
        if event.end > step.start and event.start < step.end:
            kinds[_kind(context, event)].append((event.start, event.end))
    length = step.end - step.start
    work: dict[str, Intervals] = {}
    computed: Intervals = []
    for kind in _KINDS:
        periods = minus(
            _close_gaps(clip(union(kinds[kind]), step.start, step.end), length / _POINTS), computed
        )
        computed = union(computed, periods)
        work[kind] = [(start - origin, end - start) for start, end in periods]
    return RankStep(context.trace.name, stage, step.start - origin, length, work)


def _kind(context: Context, event: Event) -> str:
    if is_communication(event):
        return "sends" if is_point_to_point(event) else "collectives"
    if is_copy(event):
        return "copies"
    launch = context.host.launch(event)
    return "backward" if launch is not None and context.host.is_inside(launch, BACKWARD) else "forward"


def _close_gaps(periods: Intervals, least: float) -> Intervals:
    """Return periods with gaps of less than ``least`` closed."""
    return [(start, end - least) for start, end in union((start, end + least) for start, end in periods)]
