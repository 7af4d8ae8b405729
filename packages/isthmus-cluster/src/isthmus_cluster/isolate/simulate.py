"""A simulated cluster with faults, and the two methods that the search is compared with.

The halving is the bisection of a job on 1024 cards by hand; the pairing follows the public description of DLRover's
network check: two rounds of pairs, the second one between the fastest and the slowest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from isthmus_cluster.isolate.rounds import Bools, Floats, Ints, Kind, Outcome, Round, Topology


@dataclass(frozen=True, kw_only=True)
class Durations:
    """Seconds that tests take.

    Attributes:
        start: to start the processes.
        join: to join a process group.
        join_each: more for each node of it.
        work: of the burn and the collectives.
        step: of one exchange of a sweep.
        timeout: after which a test is given up, counted from its start-up.
        step_timeout: after which an exchange of a sweep is given up.
        jitter: relative standard deviation of the work.
    """

    start: float = 15.0
    join: float = 5.0
    join_each: float = 0.01
    work: float = 30.0
    step: float = 0.02
    timeout: float = 180.0
    step_timeout: float = 10.0
    jitter: float = 0.01

    def start_up(self, size: Ints) -> Floats:
        """Return the seconds until the work of tests of these sizes begins: the shape of `size`."""
        return self.start + (size > 1) * (self.join + self.join_each * size)


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        kind: "node" (fires in every test), "card" (in every test but sweeps, which do not compute), "port" (in tests
            with a network), "slow" (a node), "link", "rack", "switch", "rail" (a whole one), or "scale" (a node, in
            tests of at least `size` nodes).
        first: the node, or one end of the link, or the number of the rack, switch or rail.
        second: the other end of a link; the card, for "card".
        firing: probability that it fires in a test.
        size: of "scale".
        factor: of the work of a slow node.
    """

    kind: str
    first: int
    second: int = -1
    firing: float = 1.0
    size: int = 0
    factor: float = 1.5

    @property
    def verdict(self) -> tuple[str, tuple[int, ...], int]:
        """(part, nodes, card) of the right verdict, like :meth:`Found.accused_parts`."""
        if self.kind == "link":
            return "link", (min(self.first, self.second), max(self.first, self.second)), -1
        part = "node" if self.kind in ("node", "port", "slow", "scale") else self.kind
        return part, (self.first,), self.second if self.kind == "card" else -1


_MOST_LINKS = 3  # most links of a faulty node in a sweep, before it leaves


@dataclass
class Simulator:
    """Runs tests on paper.

    Attributes:
        topology: of the cluster.
        faults: in it.
        durations: of tests.
        noise: probability that a test, or a node's part in a sweep, fails without a fault.
        random: source of all randomness.
        rounds, tests, node_seconds, elapsed: what has been run.
    """

    topology: Topology
    faults: list[Fault]
    durations: Durations = field(default_factory=Durations)
    noise: float = 0.0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    rounds: int = 0
    tests: int = 0
    node_seconds: float = 0.0
    elapsed: float = 0.0

    def run(self, tests: Round) -> Outcome:
        """Run the tests of a round."""
        number = len(tests)
        place = np.full(self.topology.nodes, -1, np.int64)
        place[tests.members] = tests.test
        failed = np.zeros(number, bool)
        cards = np.zeros(number, np.int64)
        factor = np.ones(number)
        links: list[tuple[int, int, int]] = []
        for fault in self.faults:
            hit = self._affected_tests(fault, tests, place)
            hit = hit[self.random.random(len(hit)) < fault.firing]
            mask = (
                1 << fault.second if fault.kind == "card" else 1 << fault.first if fault.kind == "rail" else 0
            )
            swept = hit[tests.kind[hit] == Kind.SWEEP]
            hit = hit[tests.kind[hit] != Kind.SWEEP]
            for test in swept:
                links += [(*link, mask) for link in self._links(fault, tests.nodes(int(test)))]
            if fault.kind == "slow":
                factor[hit] = np.maximum(factor[hit], fault.factor)
            else:
                failed[hit] = True
                cards[hit] = mask
        sweep = tests.kind == Kind.SWEEP
        failed |= (self.random.random(number) < self.noise) & ~sweep
        if self.noise:
            for test in np.flatnonzero(sweep):
                nodes = tests.nodes(int(test))
                for node in nodes[self.random.random(len(nodes)) < self.noise]:
                    links += [(*link, 0) for link in self._some_links(int(node), nodes, 1)]
        work, seconds = self._times(tests, failed, factor, bool(links))
        self._count(tests, seconds)
        found = np.array([link[:2] for link in links], np.int64).reshape(-1, 2)
        return Outcome(failed, seconds, work, cards, found, np.array([link[2] for link in links], np.int64))

    def _affected_tests(self, fault: Fault, tests: Round, place: Ints) -> Ints:
        """Return the tests that exercise what is faulty."""
        if fault.kind in ("rack", "switch", "rail"):
            regions = self.topology.switch if fault.kind == "switch" else self.topology.rack
            where = regions[tests.members]
            low = np.minimum.reduceat(where, tests.start[:-1])
            crossing = low != np.maximum.reduceat(where, tests.start[:-1])
            if fault.kind == "rail":
                return np.flatnonzero(crossing)
            inside = np.unique(place[regions == fault.first])
            return inside[(inside >= 0) & crossing[inside]]
        test = place[fault.first]
        if test < 0 or (fault.kind == "link" and place[fault.second] != test):
            return np.empty(0, np.int64)
        kind, size = tests.kind[test], tests.size[test]
        alone = kind == Kind.SELF and fault.kind in ("port", "scale")
        small = fault.kind == "scale" and (size < fault.size or kind == Kind.SWEEP)
        small |= fault.kind == "card" and kind == Kind.SWEEP
        return np.empty(0, np.int64) if alone or small else np.array([test])

    def _links(self, fault: Fault, nodes: Ints) -> list[tuple[int, int]]:
        if fault.kind == "link":
            return [(min(fault.first, fault.second), max(fault.first, fault.second))]
        if fault.kind not in ("rack", "switch", "rail"):
            return self._some_links(fault.first, nodes, _MOST_LINKS if fault.firing == 1 else 1)
        regions = self.topology.switch if fault.kind == "switch" else self.topology.rack
        found = []
        for node in nodes if fault.kind == "rail" else nodes[regions[nodes] == fault.first]:
            others = nodes[regions[nodes] != regions[node]]
            found += self._some_links(int(node), others, _MOST_LINKS)
        return sorted(set(found))

    def _some_links(self, node: int, nodes: Ints, number: int) -> list[tuple[int, int]]:
        others = nodes[nodes != node]
        chosen = self.random.choice(others, min(number, len(others)), replace=False)
        return [(min(node, int(other)), max(node, int(other))) for other in chosen]

    def _times(self, tests: Round, failed: Bools, factor: Floats, bad_links: bool) -> tuple[Floats, Floats]:
        spread = np.abs(1 + self.durations.jitter * self.random.standard_normal(len(tests)))
        work = self.durations.work * factor * spread
        sweep = tests.kind == Kind.SWEEP
        steps = self.durations.step * tests.size + bad_links * _MOST_LINKS * self.durations.step_timeout
        work = np.where(sweep, steps, np.where(failed, self.durations.timeout, work))
        return work, work + self.durations.start_up(tests.size)

    def _count(self, tests: Round, seconds: Floats) -> None:
        self.rounds += 1
        self.tests += len(tests)
        self.node_seconds += float((seconds * tests.size).sum())
        self.elapsed += float(seconds.max())


def halving(
    simulator: Simulator, *, slow: float = 1.25, repeats: int = 1, retries: int = 0
) -> set[tuple[str, tuple[int, ...], int]]:
    """Bisect as one does by hand, all halves of a round at the same time; return (part, nodes, card) found.

    Args:
        simulator: of the cluster; it counts rounds, tests and time.
        slow: a test whose work takes longer than this times the usual counts as failed.
        repeats: a half is cleared after this many passed tests (1 by hand). Both halves stop at the first failure of
            either, which is right for one fault.
        retries: if both halves pass, split again at random, at most this often (0 by hand).
    """
    nodes = simulator.topology.nodes
    failing = [(np.arange(nodes), 0)]
    found: set[tuple[str, tuple[int, ...], int]] = set()
    while failing:
        split = [(group, tries, np.array_split(group, 2)) for group, tries in failing]
        halves = [half for *_, pair in split for half in pair]
        bad = np.zeros(len(halves), bool)
        for _ in range(repeats):
            waiting = np.flatnonzero(~np.repeat(bad[::2] | bad[1::2], 2))
            if not len(waiting):
                break
            tests = Round.of_tests(
                (Kind.GROUP if len(halves[i]) > 1 else Kind.SELF, halves[i]) for i in waiting
            )
            outcome = simulator.run(tests)
            bad[waiting] = outcome.failed | (outcome.work > slow * simulator.durations.work)
        failing = []
        for index, (group, tries, pair) in enumerate(split):
            which = [half for half, fails in zip(pair, bad[2 * index : 2 * index + 2], strict=True) if fails]
            for half in which:
                if len(half) > 1:
                    failing.append((half, 0))
                else:
                    found.add(("node", (int(half[0]),), -1))
            if not which and len(group) == 2 and retries:
                found.add(("link", (int(group.min()), int(group.max())), -1))
            elif not which and tries < retries:
                failing.append((simulator.random.permutation(group), tries + 1))
    return found


def pairing(simulator: Simulator) -> set[tuple[str, tuple[int, ...], int]]:
    """Check in two rounds of pairs as DLRover's network check does; return (part, nodes, card) found.

    A node is faulty if its tests failed in both rounds, and a straggler if its shortest time is over
    twice the median.
    """
    nodes = simulator.topology.nodes
    passed = np.zeros(nodes, bool)
    shortest = np.full(nodes, np.inf)
    order = np.arange(nodes)
    for _ in range(2):
        pairs = list(order[: nodes // 2 * 2].reshape(-1, 2))
        if nodes % 2:
            pairs[-1] = np.append(pairs[-1], order[-1])
        tests = Round.of_tests((Kind.GROUP, pair) for pair in pairs)
        outcome = simulator.run(tests)
        taken = np.where(outcome.failed, 3600.0, outcome.work)[tests.test]
        shortest[tests.members] = np.minimum(shortest[tests.members], taken)
        passed[tests.members] |= ~outcome.failed[tests.test]
        if not outcome.failed.any() and outcome.work.max() <= 2 * np.median(outcome.work):
            break
        ranked = np.argsort(shortest, kind="stable")
        half = nodes // 2
        order = np.stack([ranked[:half], ranked[::-1][:half]], axis=1).ravel()
        order = np.append(order, ranked[half]) if nodes % 2 else order
    late = passed & (shortest > 2 * np.median(shortest))
    return {("node", (int(node),), -1) for node in np.flatnonzero(~passed | late)}
