"""Checks of the answers of hosts and cards: one problem for each line of the report."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from isthmus_common.finding import State
from isthmus_common.outliers import outliers
from isthmus_common.text import count
from isthmus_common.units import GIB

_ENOUGH = 3  # values, for a median that one of them cannot move
_SHOWN = 3
_ERRORS = {  # the check and the remedy, by request
    "clock": ("answer", "run `isthmus doctor` on this host"),
    "facts": ("answer", "run `isthmus doctor` on this host"),
    "load": ("cards", "run `isthmus doctor` there; if other cards start, take this one out of the inventory"),
    "work": ("cards", "take the card out of the inventory, or give a longer --timeout"),
    "collectives": ("collectives", "look for a slow or stopped card, and at the links between the cards"),
}
# Figures of cards, and of hosts for the last; and their units. A low one is bad.
FIGURES = {
    "matmul": "TFLOP/s",
    "memory": "GB/s",
    "to device": "GB/s",
    "from device": "GB/s",
    "all-reduce": "GB/s",
}


class Problem(NamedTuple):
    """A line of the report.

    Attributes:
        check: what was checked.
        where: hosts or cards.
        state: severity; only FAIL makes the command exit with 3.
        text: what was found.
        remedy: what to do.
    """

    check: str
    where: tuple[str, ...]
    state: State
    text: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The values from which on something is a problem.

    Attributes:
        clock: seconds between a clock and the others.
        memory, disk: GiB that must be free.
        deviations: robust standard deviations from the median.
        slow: share of the median that a slow card's rate is below it at least, from 0 to 1.
        at_least: the lowest rate by figure, in the units of :data:`FIGURES`.
    """

    clock: float = 0.1
    memory: float = 4.0
    disk: float = 10.0
    deviations: float = 6.0
    slow: float = 0.2
    at_least: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Results:
    """The answers, by host or by card; a card is named ``HOST card N``.

    Attributes:
        hosts: all hosts.
        lost: why hosts have not answered.
        clocks: offset from this machine's clock and its uncertainty, in seconds.
        facts: answers of :func:`isthmus_cluster.preflight.probe.facts`.
        unreachable: why hosts cannot reach the one of rank 0.
        master: address and port of rank 0.
        cards: answers of :mod:`isthmus_cluster.preflight.card`, in one dictionary for each card; and for each host
            one about the all-reduce over its cards, with ``chip`` for all of them.
        errors: why cards, or hosts, have not answered: where, which request, error.
    """

    hosts: list[str]
    lost: dict[str, str] = field(default_factory=dict)
    clocks: dict[str, tuple[float, float]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)
    master: str = ""
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: list[tuple[str, str, str]] = field(default_factory=list)


def examine(results: Results, thresholds: Thresholds) -> list[Problem]:
    """Return the problems, failures first; equal ones of several hosts are one."""
    found = [
        *_silent_hosts(results),
        *_compare_facts("versions", results.facts, "install the same version on all hosts"),
        *_compare_facts(
            "limits", results.facts, "set it in /etc/security/limits.conf, or by the container's --ulimit"
        ),
        *_compare_facts(
            "cards", _chips(results.cards), "run jobs on cards of one type, or correct the inventory"
        ),
        *_clocks(results.clocks, thresholds.clock),
        *_space(results.facts, thresholds),
        *_problems_of_hosts(results.facts),
        *_work(results.cards),
        *_same_bits(results.cards),
        *_slow_problems(results.cards, thresholds),
    ]
    places: dict[tuple[Any, ...], tuple[str, ...]] = {}
    for check, where, *rest in found:
        places[check, *rest] = places.get((check, *rest), ()) + where
    merged = [Problem(check, where, *rest) for (check, *rest), where in places.items()]
    return sorted(merged, key=lambda each: each.state is not State.FAIL)


def shorten_places(places: Iterable[str]) -> str:
    """Return the first places and the number of the others."""
    found = list(places)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def format_rate(rate: float) -> str:
    """Return a rate with three digits at least."""
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def _silent_hosts(results: Results) -> Iterator[Problem]:
    for host, why in results.lost.items():
        remedy = "check the host, ssh to it, and that Isthmus is installed there (--python)"
        yield Problem("answer", (host,), State.FAIL, why, remedy)
    for host, why in results.unreachable.items():
        text = f"cannot reach {results.master}, where rank 0 listens: {why}"
        yield Problem("reach", (host,), State.FAIL, text, "check the link, the routes and the firewall")
    for card, what, why in results.errors:
        check, remedy = _ERRORS[what]
        yield Problem(check, (card,), State.FAIL, why, remedy)


def _compare_facts(kind: str, facts: Mapping[str, Mapping[str, Any]], remedy: str) -> Iterator[Problem]:
    """Compare what must be equal everywhere; without a majority, nobody is accused."""
    for name in dict.fromkeys(name for each in facts.values() for name in each[kind]):
        values = {host: each[kind].get(name, "absent") for host, each in facts.items()}
        counts = Counter(values.values())
        usual, number = counts.most_common(1)[0]
        state = State.WARNING if name == "Linux" else State.FAIL
        if 2 * number <= len(values):
            each = (
                f"{value} on {shorten_places(host for host in values if values[host] == value)}"
                for value in counts
            )
            yield Problem(kind, tuple(values), state, f"{name}: {'; '.join(each)}", remedy)
            continue
        for host, value in values.items():
            if value != usual:
                text = f"{name} {value}, against {usual} on {count(number, 'other')}"
                yield Problem(kind, (host,), state, text, remedy)


def _chips(cards: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, dict[str, str]]]:
    return {name: {"cards": {"chip": each["chip"]}} for name, each in cards.items() if "device" in each}


def _clocks(clocks: Mapping[str, tuple[float, float]], most: float) -> Iterator[Problem]:
    for host, (offset, uncertainty) in offsets(clocks).items():
        if abs(offset) - uncertainty > most:
            direction = "ahead of" if offset > 0 else "behind"
            text = f"{abs(offset):.3g} s ± {uncertainty * 1e3:.2f} ms {direction} the median of the hosts"
            yield Problem("clocks", (host,), State.FAIL, text, "start its time service, such as chronyd")


def offsets(clocks: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Return offsets from the clock of the median host instead of this machine's, with their uncertainties."""
    if not clocks:
        return {}
    middle = sorted(clocks.values())[(len(clocks) - 1) // 2]
    return {
        host: (offset - middle[0], uncertainty + middle[1]) for host, (offset, uncertainty) in clocks.items()
    }


def _space(facts: Mapping[str, Mapping[str, Any]], thresholds: Thresholds) -> Iterator[Problem]:
    for host, each in facts.items():
        for place, free in each["space"].items():
            least = {"memory": thresholds.memory, "/dev/shm": 0.0}.get(place, thresholds.disk)
            if free < least * GIB:
                remedy = "end what uses it" if place == "memory" else "remove files there"
                text = f"{place}: {free / GIB:.1f} GiB free, less than {least:g}"
                yield Problem("space", (host,), State.FAIL, text, remedy)


def _problems_of_hosts(facts: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    for host, each in facts.items():
        for check, state, text, remedy in each["findings"]:
            yield Problem(check, (host,), State(state), text, remedy)


def _work(cards: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    remedy = "take the card out of the inventory: it computes wrong results"
    for card, each in cards.items():
        if each.get("wrong"):
            text = f"{each['wrong']} of {count(each['products'], 'equal product')} differ from the first"
            yield Problem("cards", (card,), State.FAIL, text, remedy)
        if each.get("copies"):
            text = "a copy to the card and back changes bits"
            yield Problem("cards", (card,), State.FAIL, text, remedy)


def _same_bits(cards: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """Compare the bits of the products of cards of one type."""
    for chip, group in _by_chip(cards, "digest").items():
        usual, number = Counter(group.values()).most_common(1)[0]
        for card, digest in group.items():
            if digest != usual and 2 * number > len(group):
                text = f"the bits of its product differ from those of {count(number, 'other card')} ({chip})"
                remedy = "with equal versions, take the card out of the inventory"
                yield Problem("cards", (card,), State.FAIL, text, remedy)


def _slow_problems(cards: Mapping[str, Mapping[str, Any]], thresholds: Thresholds) -> Iterator[Problem]:
    for place, figures in slow_figures(cards, thresholds).items():
        each = (
            f"{name} {format_rate(cards[place][name])} {FIGURES[name]}, {why}"
            for name, why in figures.items()
        )
        check = "collectives" if "all-reduce" in figures else "cards"
        remedy = (
            "look for other work, heat, low clocks, a degraded link; `isthmus cluster isolate` tests again"
        )
        yield Problem(check, (place,), State.FAIL, f"slow: {'; '.join(each)}", remedy)


def slow_figures(cards: Mapping[str, Mapping[str, Any]], thresholds: Thresholds) -> dict[str, dict[str, str]]:
    """Return the slow figures of cards and hosts, with their comparison to others of one type or to a limit."""
    found: dict[str, dict[str, str]] = {}
    for name in FIGURES:
        least = thresholds.at_least.get(name, 0.0)
        for rates in _by_chip(cards, name).values():
            median = statistics.median(rates.values())
            # Times, so that a low rate is far from the median whatever the spread.
            times = {place: 1 / rate for place, rate in rates.items()}
            far = outliers(times, thresholds.deviations, 1 / (1 - thresholds.slow) - 1)
            for place, rate in rates.items():
                if rate < least:
                    found.setdefault(place, {})[name] = f"less than {least:g}"
                elif place in far and len(rates) >= _ENOUGH:
                    share = f"{rate / median:.0%} of the median of {len(rates)}"
                    found.setdefault(place, {})[name] = share
    return found


def _by_chip(cards: Mapping[str, Mapping[str, Any]], figure: str) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for card, each in cards.items():
        if figure in each:
            groups.setdefault(each["chip"], {})[card] = each[figure]
    return groups
