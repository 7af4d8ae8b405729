"""The order of the calls of several ranks: what a rank sends comes before what another computes from it."""

from collections import Counter, deque
from typing import NamedTuple

from isthmus_diagnostics.accuracy.reading import Rank, Recorded


class _Meeting(NamedTuple):
    """A collective of a group, or a message from a rank to another.

    Attributes:
        key: the same on all ranks.
        needed: ranks that have to come to it before this one goes on.
    """

    key: tuple[object, ...]
    needed: frozenset[int] = frozenset()


def clocks(ranks: list[Rank]) -> dict[int, int]:
    """Return a logical time for each call, by its ``id``.

    The calls of a rank are in order; a collective ends after all its ranks have come to it, a receive after the send
    (Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System", 1978).
    """
    present = {rank.number for rank in ranks}
    meetings = {key: each for rank in ranks for key, each in _meetings(rank, present).items()}
    queues = {rank.number: deque(sorted(rank.calls, key=_finish)) for rank in ranks}
    now = dict.fromkeys(queues, 0)
    arrived: dict[tuple[object, ...], dict[int, int]] = {}
    found: dict[int, int] = {}
    is_stuck = False
    while any(queues.values()):
        before = len(found)
        for number, queue in queues.items():
            while queue:
                times: dict[int, int] = {}
                if (meeting := meetings.get(id(queue[0]))) is not None:
                    times = arrived.setdefault(meeting.key, {})
                    times.setdefault(number, now[number])
                    if not is_stuck and not meeting.needed <= times.keys():
                        break
                is_stuck = False
                now[number] = times[number] = max(now[number], *times.values(), 0) + 1
                found[id(queue.popleft())] = now[number]
        is_stuck = len(found) == before  # an incomplete dump: the first rank goes on
    return found


def peer(call: Recorded) -> int | None:
    """Return the rank that a call sends to or receives from."""
    member = call.arguments.get("dst" if is_send(call) else "src")
    if not call.group or not isinstance(member, int) or not 0 <= member < len(call.group):
        return None
    return call.group[member]


def is_send(call: Recorded) -> bool:
    """Return whether a call sends to one rank."""
    return call.operator.startswith("c10d::send")


def _finish(call: Recorded) -> float:
    return call.number if call.completed < 0 else call.completed - 0.5


def _meetings(rank: Rank, present: set[int]) -> dict[int, _Meeting]:
    found: dict[int, _Meeting] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for call in rank.calls:
        if not call.group:
            continue
        key: tuple[object, ...] = call.group
        needed = present & set(call.group)
        if (other := peer(call)) is not None:
            key = (rank.number, other) if is_send(call) else (other, rank.number)
            key, needed = ("message", *key), set() if is_send(call) else present & {other}
        found[id(call)] = _Meeting((*key, counts[key]), frozenset(needed))
        counts[key] += 1
    return found
