"""Posterior of each node, link, rack, switch and rail, given the tests so far.

The model is a noisy OR: a faulty part makes a test that exercises it fail with its firing probability, independently
of other parts and tests; a test fails for no reason with a small probability. A node is in one of ten states:
healthy, or a place of the fault (any test; network tests only; tests of at least some number of nodes only) times one
of three firing probabilities. All other parts are healthy or fire with one of the three.

A passed test factorises over its members, so counts of passes are exact. Failed tests are few; loopy belief
propagation over those (Pearl 1988, noisy-OR messages) lets one proven culprit explain the failures of its partners.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus_cluster.isolate.rounds import Bools, Floats, Ints, Kind, Outcome, Round, Topology

FIRING = (0.99, 0.5, 0.2)
PLACES = 3  # places of a node's fault: anywhere, network, scale
STATES = 1 + PLACES * len(FIRING)
SIZES = 20  # classes of test sizes, by power of two
_SHARED = 0.05  # share of the failures of a link, rack or switch that name one card
_ONE_CARD = 0.5  # share of the faults of a node that are of one card
_ITERATIONS = 25
_SETTLED = 1e-2  # change of a message, in nats
_MOST_EQUAL = 8  # equal failed tests of one factor: the alternating sum cancels beyond
_BINOMIAL = np.array(
    [[math.comb(n, k) for k in range(_MOST_EQUAL + 1)] for n in range(_MOST_EQUAL + 1)], float
)
_LEAST = 1e-13  # probability that the sum can tell from 0
with np.errstate(
    divide="ignore"
):  # places and firing probabilities; at scale, faults are taken to fire reliably
    _SHARES = np.log([[0.25, 0.1, 0.1], [0.25, 0.1, 0.1], [0.1, 0.0, 0.0]])
PARTS = ("node", "link", "rack", "switch", "rail")
NODE, LINK, RACK, SWITCH, RAIL = range(len(PARTS))


class Part(NamedTuple):
    """A part of the cluster: its kind, and its number; a link has two, the lower one first."""

    kind: int
    first: int
    second: int = 0

    @property
    def name(self) -> str:
        """The kind in words."""
        return PARTS[self.kind]


@dataclass
class _Failure:
    """A failed test: the parts that may have made it fail, as codes, and how each state of a part fires in it."""

    parts: Ints
    firing: Floats
    noise: float
    round: int
    cards: int


@dataclass
class Belief:
    """Log-odds of a fault for each part.

    Attributes:
        topology: of the cluster.
        expected: number of faulty nodes expected beforehand; a link, rack, switch or rail is less likely.
        noise: probability that a test fails without a fault.
        scale: the smallest size of a failed group: the place "scale" of a node fires in tests of at least that size.
        passes_any, passes_network: int64 of shape (nodes,), passed tests with the burn, and with others.
        sweeps: sweeps of all nodes.
    """

    topology: Topology
    expected: float = 4.0
    noise: float = 1e-4
    scale: int = 0
    passes_any: Ints = field(init=False)
    passes_network: Ints = field(init=False)
    _failures: list[_Failure] = field(default_factory=list)
    _link_passes: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start without tests."""
        nodes = self.topology.nodes
        self.passes_any = np.zeros(nodes, np.int64)
        self.passes_network = np.zeros(nodes, np.int64)
        self.sweeps = 0
        self._by_size = np.zeros((nodes, SIZES), np.int64)
        self._rack_passes = np.zeros(int(self.topology.rack.max()) + 1, np.int64)
        self._switch_passes = np.zeros(int(self.topology.switch.max()) + 1, np.int64)
        self._rail_passes = 0
        self._places: list[
            NDArray[np.int32]
        ] = []  # for each round, the passed network test of each node, or -1
        self.codes = np.empty(0, np.int64)
        self.log_odds = np.empty(0)
        self.evidence = np.empty(0)
        self.failures = np.empty(0, np.int64)
        self.places = np.empty((0, PLACES))
        self.often = np.empty(0)
        self._messages = np.empty((0, STATES))

    # -- observing -----

    def observe(self, tests: Round, outcome: Outcome, bad: Bools, number: int) -> None:
        """Take in a round.

        Args:
            tests, outcome: of the round.
            bad: bool of shape (tests,), which tests failed or were slow.
            number: of the round.
        """
        good = ~bad
        self._count_passes(tests, good, outcome.links.ravel())
        for test in np.flatnonzero(bad):
            if tests.kind[test] == Kind.SWEEP:
                continue  # its links are below
            nodes = tests.nodes(int(test))
            if tests.kind[test] == Kind.GROUP and len(nodes) > 3:
                self.scale = min(self.scale or len(nodes), len(nodes))
            self._fail(np.sort(nodes), int(tests.kind[test]), int(outcome.cards[test]), number)
        for (first, second), cards in zip(outcome.links, outcome.link_cards, strict=True):
            self._fail(np.sort([first, second]), int(Kind.SWEEP), int(cards), number)
        self._update()

    def _count_passes(self, tests: Round, good: Bools, links: Ints) -> None:
        """Count passes. A sweep with bad links passed for its other links, and for the nodes that have none."""
        test, kind = tests.test, tests.kind[tests.test]
        passed = good[test] & ~np.isin(tests.members, links)
        network = passed & (kind != Kind.SELF)
        whole = passed & (kind == Kind.GROUP)
        self.passes_any[tests.members[passed & (kind != Kind.SWEEP)]] += 1
        self.passes_network[tests.members[network]] += 1
        self._by_size[tests.members[whole], _size_classes(tests.size)[test][whole]] += 1  # nodes are disjoint
        place = np.full(self.topology.nodes, -1, np.int32)
        place[tests.members[network]] = test[network]
        if not network.any():
            return
        self._places.append(place)
        self.sweeps += bool((tests.size[tests.kind == Kind.SWEEP] > self.topology.nodes / 2).any())
        for code in self._link_passes:
            self._link_passes[code] += _are_together(place, _decode_part(code))
        spoiled = np.zeros(len(tests), bool)
        spoiled[test[np.isin(tests.members, links)]] = True
        self._count_regions(tests, test, good & ~spoiled)

    def _count_regions(self, tests: Round, test: Ints, good: Bools) -> None:
        for regions, passes in (
            (self.topology.rack, self._rack_passes),
            (self.topology.switch, self._switch_passes),
        ):
            crossing = self._crosses_region(tests, regions) & good
            if regions is self.topology.rack:
                self._rail_passes += int(crossing.sum())
            entries = crossing[test]
            pairs = np.unique(test[entries] * len(passes) + regions[tests.members[entries]])
            passes[:] = passes + np.bincount(pairs % len(passes), minlength=len(passes))

    @staticmethod
    def _crosses_region(tests: Round, regions: Ints) -> Bools:
        where = regions[tests.members]
        if not len(where):
            return np.zeros(0, bool)
        low = np.minimum.reduceat(where, tests.start[:-1])
        return (tests.kind != Kind.SELF) & (low != np.maximum.reduceat(where, tests.start[:-1]))

    def _fail(self, nodes: Ints, kind: int, cards: int, number: int) -> None:
        one = cards > 0 and cards.bit_count() == 1
        allowed = [
            True,
            kind != Kind.SELF,
            bool(self.scale) and kind == Kind.GROUP and len(nodes) >= self.scale,
        ]
        states = np.concatenate([[0.0], np.outer(allowed, FIRING).ravel()])
        codes = [_code(NODE, node) for node in nodes]
        firing = [states * (_ONE_CARD if one else 1.0)] * len(nodes)
        noise = self.noise
        if kind != Kind.SELF:
            simple = np.concatenate([[0.0], FIRING, np.zeros(STATES - 1 - len(FIRING))])
            others = self._regions(nodes)
            if len(nodes) == 2:
                link = _code(LINK, int(nodes.min()), int(nodes.max()))
                if link not in self._link_passes:
                    self._link_passes[link] = sum(
                        _are_together(place, _decode_part(link)) for place in self._places
                    )
                others.append(link)
            else:
                firing_links = np.mean(np.array(FIRING) * (1 - np.array(FIRING)) ** self.sweeps)
                noise += len(nodes) ** 2 / 2 * self._prior_of(LINK) * float(firing_links)
            codes += others
            firing += [simple * (_SHARED if one else 1.0)] * len(others)
            if one and len(np.unique(self.topology.rack[nodes])) > 1:
                codes.append(_code(RAIL, cards.bit_length() - 1))
                firing.append(simple)
        self._failures.append(_Failure(np.array(codes, np.int64), np.array(firing), noise, number, cards))

    def _regions(self, nodes: Ints) -> list[int]:
        found = []
        for kind, regions in ((RACK, self.topology.rack), (SWITCH, self.topology.switch)):
            inside = np.unique(regions[nodes])
            if len(inside) > 1:
                found += [_code(kind, region) for region in inside]
        return found

    # -- inference -----

    def _prior_of(self, kind: int) -> float:
        node = min(0.2, self.expected / self.topology.nodes)
        return node / self.topology.nodes if kind == LINK else node if kind == NODE else 0.2 * node

    def _base(self, codes: Ints) -> Floats:
        """Log weights of the states of these parts from the prior and the passed tests: (parts, STATES)."""
        weights = np.full((len(codes), STATES), -np.inf)
        lost = np.log1p(-np.array(FIRING))
        kinds = codes >> 56
        nodes = _first_codes(codes[kinds == NODE])
        prior = self._prior_of(NODE)
        at_scale = (
            self._by_size[nodes, _size_classes(np.array(self.scale)) :].sum(1)
            if self.scale
            else np.zeros(len(nodes))
        )
        passes = np.stack([self.passes_any[nodes], self.passes_network[nodes], at_scale], axis=1)
        faulty = np.log(prior) + _SHARES + passes[:, :, None] * lost
        weights[kinds == NODE] = np.concatenate(
            [np.full((len(nodes), 1), np.log1p(-prior)), faulty.reshape(-1, STATES - 1)], axis=1
        )
        others = np.flatnonzero(kinds != NODE)
        for index in others:
            prior = self._prior_of(int(kinds[index]))
            weights[index, 0] = np.log1p(-prior)
            weights[index, 1 : 1 + len(FIRING)] = (
                np.log(prior / len(FIRING)) + self._count_passed(int(codes[index])) * lost
            )
        return weights

    def _count_passed(self, code: int) -> int:
        part = _decode_part(code)
        if part.kind == LINK:
            return self._link_passes[code]
        if part.kind == RAIL:
            return self._rail_passes
        return int((self._rack_passes if part.kind == RACK else self._switch_passes)[part.first])

    def _update(self) -> None:
        """Run belief propagation over the failed tests. Equal tests are one factor, for which messages are exact."""
        if not self._failures:
            return
        factors: dict[tuple[bytes, int], _Failure] = {}
        equal: Counter[bytes] = Counter()
        times: Counter[tuple[bytes, int]] = Counter()
        for failure in self._failures:
            bits = failure.parts.tobytes() + failure.firing.tobytes()
            key = bits, equal[bits] // _MOST_EQUAL
            equal[bits] += 1
            times[key] += 1
            factors[key] = failure
        self._propagate(list(factors.values()), np.array([times[key] for key in factors]))

    def _propagate(self, factors: list[_Failure], times: Ints) -> None:
        sizes = np.array([len(factor.parts) for factor in factors])
        test = np.repeat(np.arange(len(sizes)), sizes)
        first = np.cumsum(sizes) - sizes
        self.codes, part = np.unique(np.concatenate([f.parts for f in factors]), return_inverse=True)
        by_part = np.argsort(part, kind="stable")
        first_of_part = np.searchsorted(part[by_part], np.arange(len(self.codes)))
        # P(all n equal tests fail) = sum over k of C(n, k) (-1)^k P(k of them do not): it factorises over parts.
        k = np.arange(1, times.max() + 1)[:, None]
        quiet = (1 - np.concatenate([f.firing for f in factors])) ** k[:, :, None]
        noise = np.array([f.noise for f in factors])
        sign = ((-1.0) ** k * _BINOMIAL[times, k] * (1 - noise) ** k)[:, test]
        base = self._base(self.codes)
        message: Floats = np.zeros(quiet.shape[1:])
        # Starts from the last round's messages: it converges sooner.
        message[: len(self._messages)] = self._messages
        for _ in range(_ITERATIONS):
            total = base + np.add.reduceat(message[by_part], first_of_part)
            cavity = total[part] - message
            weight = np.exp(cavity - cavity.max(1, keepdims=True))
            weight /= weight.sum(1, keepdims=True)
            silent = np.log(np.maximum(np.einsum("es,kes->ke", weight, quiet), 1e-300))
            others = np.add.reduceat(silent, first, axis=1)[:, test] - silent
            failing = 1 + np.einsum("ke,kes->es", sign * np.exp(np.minimum(others, 0)), quiet)
            fresh = np.log(np.maximum(failing, _LEAST))
            change = fresh - fresh[:, :1] - message
            message = message + 0.5 * change
            if np.abs(change).max() < _SETTLED:
                break
        self._messages = message
        total = base + np.add.reduceat(message[by_part], first_of_part)
        self.log_odds = _odds(total)
        self.evidence = self.log_odds - _odds(base)
        self.failures = np.bincount(part, times[test], minlength=len(self.codes)).astype(np.int64)
        weight = np.exp(total[:, 1:] - total[:, 1:].max(1, keepdims=True))
        weight = (weight / weight.sum(1, keepdims=True)).reshape(len(weight), PLACES, -1)
        self.places = weight.sum(2)
        self.often = weight[:, :, :-1].sum((1, 2))

    # -- answers -----

    def parts(self) -> list[Part]:
        """Return the parts with a failed test, in the order of `log_odds`, `evidence` and `failures`."""
        return [_decode_part(int(code)) for code in self.codes]

    def place(self, node: int) -> Floats:
        """Return how probable the places of a node's fault are (anywhere, network, scale), if it is faulty."""
        return self.places[np.searchsorted(self.codes, _code(NODE, node))]

    def fires_often(self, part: Part) -> float:
        """Return how probable it is that a part fires in half of its tests or more, if it is faulty."""
        return float(self.often[np.searchsorted(self.codes, _code(*part))])

    def tests_of(self, part: Part) -> frozenset[int]:
        """Return the numbers of the failed tests that a part may have caused."""
        code = _code(*part)
        return frozenset(index for index, failure in enumerate(self._failures) if code in failure.parts)

    def rivals(self, part: Part) -> dict[Part, float]:
        """Return the other parts that may have caused all failed tests of a part, with the log-odds to the part.

        Belief propagation overstates the odds of one of several parts that share their failed tests; these are exact
        for one culprit.
        """
        code = _code(*part)
        failures = [self._failures[test] for test in self.tests_of(part)]
        shared = reduce(np.intersect1d, (failure.parts for failure in failures))
        weights = self._base(shared)[:, 1:]
        for failure in failures:
            order = np.argsort(failure.parts)
            with np.errstate(divide="ignore"):  # a part does not fire in some places
                weights += np.log(failure.firing[order[np.isin(failure.parts[order], shared)], 1:])
        total = np.logaddexp.reduce(weights, axis=1)
        odds = total - total[shared == code]
        return {
            _decode_part(int(other)): float(gain)
            for other, gain in zip(shared, odds, strict=True)
            if other != code
        }

    def failed_cards(self, node: int) -> list[int]:
        """Return the card masks of the failed tests of a node."""
        code = _code(NODE, node)
        return [failure.cards for failure in self._failures if code in failure.parts]


def _odds(weights: Floats) -> Floats:
    top = weights[:, 1:].max(1)
    return top + np.log(np.exp(weights[:, 1:] - top[:, None]).sum(1)) - weights[:, 0]


def _size_classes(sizes: Ints) -> Ints:
    return np.minimum(np.log2(np.maximum(sizes, 1)).astype(np.int64), SIZES - 1)


def _are_together(place: NDArray[np.int32], link: Part) -> bool:
    return bool(place[link.first] >= 0 and place[link.first] == place[link.second])


def _code(kind: int, first: int, second: int = 0) -> int:
    return kind << 56 | int(first) << 28 | int(second)


def _decode_part(code: int) -> Part:
    return Part(code >> 56, code >> 28 & (1 << 28) - 1, code & (1 << 28) - 1)


def _first_codes(codes: Ints) -> Ints:
    return codes >> 28 & (1 << 28) - 1
