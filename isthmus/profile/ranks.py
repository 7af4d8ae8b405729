"""Ranks against each other: who arrives last at collectives, and which links are slow."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from isthmus.profile.steps import device_work, is_communication
from isthmus.profile.trace import Event, Trace

Key = tuple[str, str, int, int]
"""Name, group, bytes, and the how-manieth of these."""


@dataclass
class Wait:
    """How long a rank was in a collective before the last rank arrived, in microseconds."""

    rank: int
    last: int
    time: float
    event: Event


@dataclass
class Link:
    """The collectives of one name, group and size; the time is from the arrival of the last rank to the end."""

    name: str
    group: str
    bytes: int
    calls: int
    time: float
    """Median in microseconds."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return 1e6 * self.bytes / self.time if self.time > 0 else 0.0


def _group(event: Event) -> str:
    """Return the process group of a collective, as its ranks or name, else its size."""
    args = event.args
    return str(
        args.get("Process Group Ranks") or args.get("Process Group Name") or args.get("Group size", "")
    )


def _bytes(event: Event) -> int:
    args = event.args
    if "bytes" in args:
        return int(args["bytes"])
    widths = {"float": 4, "int": 4, "double": 8, "long": 8, "bfloat16": 2, "half": 2, "byte": 1, "char": 1}
    return int(args.get("In msg nelems", 0)) * widths.get(str(args.get("dtype", "")).lower(), 1)


def _collectives(trace: Trace) -> dict[Key, Event]:
    counts: Counter[tuple[str, str, int]] = Counter()
    found = {}
    for event in device_work(trace):
        if is_communication(event):
            kind = (str(event.args.get("Collective name", event.name)), _group(event), _bytes(event))
            found[(*kind, counts[kind])] = event
            counts[kind] += 1
    return found


def _matched(traces: list[Trace]) -> dict[Key, dict[int, Event]]:
    """Return the calls of each collective by rank, where several ranks have it."""
    by_key: dict[Key, dict[int, Event]] = defaultdict(dict)
    for trace in traces:
        for key, event in _collectives(trace).items():
            by_key[key][trace.rank] = event
    return {key: calls for key, calls in by_key.items() if len(calls) > 1}


def waits(traces: list[Trace]) -> list[Wait]:
    """Return the wait of every rank for the last one in every collective.

    A collective ends on all its ranks at about one time, so the rank that was in it for the shortest time arrived
    last; this needs no common clock.
    """
    found = []
    for calls in _matched(traces).values():
        last = min(calls, key=lambda rank: calls[rank].duration)
        shortest = calls[last].duration
        found += [Wait(rank, last, event.duration - shortest, event) for rank, event in calls.items()]
    return found


def slowest(found: Iterable[Wait]) -> dict[int, float]:
    """Return the time that the other ranks waited for each rank, in microseconds, the slowest first."""
    waited: dict[int, float] = defaultdict(float)
    for wait in found:
        waited[wait.last] += wait.time
    return dict(sorted(waited.items(), key=lambda item: -item[1]))


def links(traces: list[Trace]) -> list[Link]:
    """Return the collectives by name, group and size, the longest total time first."""
    times: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for (name, group, size, _), calls in _matched(traces).items():
        times[name, group, size].append(min(event.duration for event in calls.values()))
    found = [Link(*kind, len(durations), median(durations)) for kind, durations in times.items()]
    return sorted(found, key=lambda link: -link.time * link.calls)


def is_slow(link: Link, all_links: list[Link]) -> bool:
    """Return whether a group takes twice the median time of the groups that do the same."""
    peers = [other.time for other in all_links if (other.name, other.bytes) == (link.name, link.bytes)]
    return len(peers) > 2 and link.time > 2 * median(peers)
