"""A simulated cluster with faults."""

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
        node_seconds: what has been run.
    """

    topology: Topology
    faults: list[Fault]
    durations: Durations = field(default_factory=Durations)
    noise: float = 0.0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    node_seconds: float = 0.0

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
        self.node_seconds += float((seconds * tests.size).sum())
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
