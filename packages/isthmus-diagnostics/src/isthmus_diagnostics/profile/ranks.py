"""Comparison of ranks: which one arrives last at collectives, and which links are slow."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations
from statistics import median

from isthmus_diagnostics.profile.steps import is_communication
from isthmus_diagnostics.profile.trace import Event, Trace, ranks_of

Key = tuple[str, str, int, int]
"""Name, group, bytes, and the how-manieth of these."""


@dataclass
class Wait:
    """The time of a rank in a collective before the last rank arrived, in microseconds."""

    rank: str
    last: str
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


def group_of(event: Event, trace: Trace) -> str:
    """Return the process group of a collective, as its ranks or name, else its size."""
    args = event.args
    sized = [group for group in trace.groups if len(group) == args.get("Group size")]
    ranks = args.get("Process Group Ranks") or (sized[0] if len(sized) == 1 else "")
    return str(ranks or args.get("Process Group Name") or args.get("Group size", ""))


def _bytes(event: Event) -> int:
    args = event.args
    if "bytes" in args:
        return int(args["bytes"])
    widths = {"float": 4, "int": 4, "double": 8, "long": 8, "bfloat16": 2, "half": 2, "byte": 1, "char": 1}
    return int(args.get("In msg nelems", 0)) * widths.get(str(args.get("dtype", "")).lower(), 1)


def _collectives(trace: Trace) -> dict[Key, Event]:
    counts: Counter[tuple[str, str, int]] = Counter()
    found = {}
    for event in trace.device:
        if is_communication(event):
            kind = (str(event.args.get("Collective name", event.name)), group_of(event, trace), _bytes(event))
            found[(*kind, counts[kind])] = event
            counts[kind] += 1
    return found


def _match_calls(traces: list[Trace]) -> dict[Key, dict[str, Event]]:
    """Return the calls of each collective by rank, where several ranks have it."""
    by_key: dict[Key, dict[str, Event]] = defaultdict(dict)
    for trace in traces:
        for key, event in _collectives(trace).items():
            by_key[key][trace.name] = event
    return {key: calls for key, calls in by_key.items() if len(calls) > 1}


def waits(traces: list[Trace]) -> list[Wait]:
    """Return the wait of every rank for the last one in every collective.

    A collective ends on all its ranks at about one time, so the rank that was in it for the shortest time arrived
    last; this needs no common clock.
    """
    found = []
    for calls in _match_calls(traces).values():
        last = min(calls, key=lambda rank: calls[rank].duration)
        shortest = calls[last].duration
        found += [Wait(rank, last, event.duration - shortest, event) for rank, event in calls.items()]
    return found


def time_waited_for(found: Iterable[Wait]) -> dict[str, float]:
    """Return the time that the other ranks waited for each rank, in microseconds, the slowest first."""
    waited: dict[str, float] = defaultdict(float)
    for wait in found:
        waited[wait.last] += wait.time
    return dict(sorted(waited.items(), key=lambda item: -item[1]))


def links(traces: list[Trace]) -> list[Link]:
    """Return the collectives by name, group and size, the longest total time first."""
    times: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for (name, group, size, _), calls in _match_calls(traces).items():
        times[name, group, size].append(min(event.duration for event in calls.values()))
    found = [Link(*kind, len(durations), median(durations)) for kind, durations in times.items()]
    return sorted(found, key=lambda link: -link.time * link.calls)


def slowness(link: Link, all_links: list[Link]) -> float:
    """Return the time of a group over the median of the groups that do the same; 1 if there are fewer than three."""
    peers = [other.time for other in all_links if (other.name, other.bytes) == (link.name, link.bytes)]
    return link.time / median(peers) if len(peers) > 2 and median(peers) > 0 else 1.0


def pairs(found: list[Link]) -> dict[tuple[int, int], float]:
    """Return for each pair of ranks the lowest slowness of the groups that both are in, if any was compared."""
    lowest: dict[tuple[int, int], float] = {}
    for link in found:
        slow = slowness(link, found)
        for pair in permutations(ranks_of(link.group), 2):
            lowest[pair] = min(slow, lowest.get(pair, slow))
    return lowest
