"""The search for faulty nodes, cards, links, racks, switches and rails: which tests to run next, and when to stop.

1. Each node by itself.
2. Pairs inside racks; nodes that failed repeat their own test, so that no partner is lost to them.
3. While a part is suspected: its tests are repeated, with proven-good partners, a different one each time; a failed
   group of more than two is swept link by link, then split, filled up with proven-good nodes to the size that failed.
4. While nothing explains the fault that the search was started for: a pair between racks for each rack and each
   switch, groups of about sqrt(N) nodes from few racks, a sweep of all links, groups of a quarter and a half of the
   nodes, then pairs and sweeps until a fault of the given firing probability would have shown itself with the given
   confidence.

A part is accused when its log-odds pass the limit, which is stricter for two failed tests and for parts that fire
rarely, at least two of its tests failed, and no other part may have caused all of these. The search ends when every
part with a failed test is accused or cleared and either a part is accused or step 4 is exhausted, or when the budget
is spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from isthmus_cluster.isolate.belief import LINK, NODE, RACK, RAIL, SWITCH, Belief, Part
from isthmus_cluster.isolate.rounds import (
    Bools,
    Ints,
    Kind,
    Outcome,
    Round,
    Runner,
    Topology,
    median_and_deviation,
    robust_z,
)

_SLOW_Z = 6.0
_EXPLAINED = 1.0  # evidence of failed tests, in nats, below which other parts explain them
_CLEARED = 2.0  # nats beyond the limit: of many suspects, few may be cleared wrongly
_PARTS_OF_A_SPLIT = 8
_SHARE_OF_A_SPLIT = 16  # share of the nodes that one round of a split tests
_SCALE, _ANYWHERE = (
    0.2,
    0.6,
)  # probabilities of a node's place at which it is split at scale, or tested by itself
_TOGETHER = {
    True: 2,
    False: 3,
}  # rounds between tests of the ends of a link together; if it fails often, and if not
_NODES_OF_A_REPETITION = 2048  # before the first sweep, which takes a step for each node
_LIKELY = 0.05  # probability that a suspect is faulty, above which the others wait


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The cost that the search may have, and the certainty that it must reach.

    Attributes:
        confidence: a part is accused at this probability, and cleared at the opposite one.
        firing: the smallest probability, per test, with which a fault to be found shows itself.
        rounds: most rounds.
        node_hours: most node-hours; infinite by default.
        expected: faulty nodes expected beforehand.
        noise: probability that a test fails without a fault.
        slow: times the median from which a test can be slow; it is if its robust z is above 6 as well.
        seed: of the choice of partners and groups.
    """

    confidence: float = 0.999
    firing: float = 0.2
    rounds: int = 400
    node_hours: float = math.inf
    expected: float = 4.0
    noise: float = 1e-4
    slow: float = 1.1
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a value is out of its range.
        """
        for name, low, high in (("confidence", 0.5, 1), ("firing", 0, 1), ("noise", 0, 0.5)):
            if not low < getattr(self, name) < high:
                raise ValueError(f"{name} {getattr(self, name)}: give a number between {low} and {high}")
        for name in ("rounds", "node_hours", "expected"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} {getattr(self, name)}: give a positive number")

    @property
    def limit(self) -> float:
        """Log-odds at which a part is accused that fires often; the opposite clears it."""
        return math.log(self.confidence / (1 - self.confidence))

    @property
    def strict_limit(self) -> float:
        """Log-odds at which a part is accused on two failed tests, or if it fires rarely, so that it is tested often.

        A healthy part reaches odds of x times its prior odds with probability 1 / x at most (Ville 1939). The prior
        odds of all nodes and links add up to 1.5 times `expected`, so the limit is raised by as much.
        """
        return self.limit + math.log(max(1.0, 1.5 * self.expected))

    @property
    def exposures(self) -> int:
        """Passed tests after which a fault that fires with `firing` is excluded."""
        return math.ceil(math.log(1 - self.confidence) / math.log(1 - self.firing))


@dataclass(frozen=True)
class Evidence:
    """A failed or slow test of an accused part."""

    round: int
    kind: str
    nodes: tuple[int, ...]
    what: str


@dataclass(frozen=True)
class Verdict:
    """An accused part.

    Attributes:
        part: node, card, link, rack, switch or rail.
        nodes: the node, or the two ends of a link; the number of a rack, switch or rail.
        card: of the node, for "card"; -1 otherwise.
        log_odds: natural logarithm of P(faulty) / P(healthy).
        slow: all its bad tests were slow ones; none failed.
        round: in which it was accused.
        evidence: its failed and slow tests.
    """

    part: str
    nodes: tuple[int, ...]
    card: int
    log_odds: float
    slow: bool
    round: int
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class RoundSummary:
    """A round: what it tested and found."""

    number: int
    purpose: str
    tests: int
    nodes: int
    bad: int
    seconds: float
    node_hours: float


@dataclass
class Found:
    """The result of a search.

    Attributes:
        verdicts: accused parts.
        suspects: parts neither accused nor cleared when the search ended, with their log-odds.
        rounds: what was run.
        excluded: the firing probability above which a fault in any other node would have been seen with `confidence`.
        ended: why the search ended.
    """

    verdicts: list[Verdict]
    suspects: list[tuple[Part, float]]
    rounds: list[RoundSummary]
    excluded: float
    ended: str
    settings: Settings

    @property
    def tests(self) -> int:
        """Tests of all rounds."""
        return sum(each.tests for each in self.rounds)

    @property
    def node_hours(self) -> float:
        """Hours of all nodes while they were in tests."""
        return sum(each.node_hours for each in self.rounds)

    @property
    def seconds(self) -> float:
        """Elapsed time: the longest test of each round."""
        return sum(each.seconds for each in self.rounds)

    def accused_parts(self, before: int | None = None) -> set[tuple[Any, ...]]:
        """Return (part, nodes, card) of the verdicts, of those up to a round if it is given."""
        return {(v.part, v.nodes, v.card) for v in self.verdicts if before is None or v.round <= before}

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "suspects": [
                {
                    "part": part.name,
                    "numbers": list(part[1 : 3 if part.kind == LINK else 2]),
                    "log_odds": odds,
                }
                for part, odds in self.suspects
            ],
            "rounds": [asdict(each) for each in self.rounds],
            "tests": self.tests,
            "node_hours": self.node_hours,
            "seconds": self.seconds,
            "excluded": self.excluded,
            "ended": self.ended,
            "settings": asdict(self.settings),
        }


@dataclass
class Search:
    """A search in progress."""

    topology: Topology
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        """Start without tests."""
        self.belief = Belief(self.topology, self.settings.expected, self.settings.noise)
        self.random = np.random.default_rng(self.settings.seed)
        self.verdicts: dict[Part, Verdict] = {}
        self._accused = np.zeros(self.topology.nodes, bool)
        self._cut = self._accused.copy()  # nodes whose rack, switch or rails are accused
        self._open: list[tuple[float, Part]] = []
        self._bad: list[tuple[int, Kind, Ints, str]] = []
        self._reference: dict[tuple[int, int], tuple[int, float, float]] = {}
        self._to_sweep: list[Ints] = []
        self._swept_all = False
        self._met: dict[int, set[int]] = {}
        self._broad = self._broad_rounds()
        self.rounds: list[RoundSummary] = []

    # -- the loop -----

    def run(self, runner: Runner, progress: Callable[[RoundSummary], None] = lambda each: None) -> Found:
        """Run rounds until the search ends.

        Args:
            runner: runs the tests.
            progress: called after each round.
        """
        while True:
            if len(self.rounds) >= self.settings.rounds:
                return self._result("the rounds are used up")
            if sum(each.node_hours for each in self.rounds) >= self.settings.node_hours:
                return self._result("the node-hours are used up")
            purpose, tests = self.propose()
            if not len(tests):
                return self._result("every part is accused or cleared")
            progress(self.observe(purpose, tests, runner.run(tests)))

    def observe(self, purpose: str, tests: Round, outcome: Outcome) -> RoundSummary:
        """Take in what a round reported."""
        number = len(self.rounds) + 1
        slow = self._slow_tests(tests, outcome)
        bad = outcome.failed | slow
        for test in np.flatnonzero(bad):
            if tests.kind[test] != Kind.SWEEP:
                nodes = tests.nodes(int(test))
                what = (
                    "slow"
                    if slow[test]
                    else ": ".join(filter(None, ["failed", outcome.causes.get(int(test), "")]))
                )
                self._bad.append((number, Kind(tests.kind[test]), nodes, what))
                if len(nodes) <= 3:
                    for node in nodes.tolist():
                        self._met.setdefault(node, set()).update(nodes.tolist())
                if tests.kind[test] == Kind.GROUP and len(nodes) > 2 and not self._swept_all:
                    self._to_sweep.append(nodes)
        for first, second in outcome.links:
            self._bad.append((number, Kind.SWEEP, np.array([first, second]), "failed"))
        self.belief.observe(tests, outcome, bad, number)
        self._judge(number)
        summary = RoundSummary(
            number,
            purpose,
            len(tests),
            len(tests.members),
            int(bad.sum()) + len(outcome.links),
            float(outcome.seconds.max()),
            float((outcome.seconds * tests.size).sum()) / 3600,
        )
        self.rounds.append(summary)
        return summary

    def _slow_tests(self, tests: Round, outcome: Outcome) -> Bools:
        """Return which tests took longer than the others of their kind and size: bool of shape (tests,)."""
        slow = np.zeros(len(tests), bool)
        sizes = tests.size
        for kind, size in np.unique(np.stack([tests.kind, sizes]), axis=1).T:
            which = np.flatnonzero((tests.kind == kind) & (sizes == size) & ~outcome.failed)
            if kind == Kind.SWEEP or not len(which):
                continue
            times = outcome.work[which]
            known = self._reference.get((kind, size), (0, 0.0, 0.0))
            if len(which) >= max(4, known[0]):
                known = len(which), *median_and_deviation(times)
                self._reference[kind, size] = known
            if known[0]:
                slow[which] = (robust_z(times, *known[1:]) > _SLOW_Z) & (
                    times > self.settings.slow * known[1]
                )
        return slow

    # -- verdicts -----

    def _judge(self, number: int) -> None:
        limit = self.settings.limit
        accused = {}
        suspected: dict[Part, float] = {}
        belief = self.belief
        regions = {
            part: (float(odds), belief.tests_of(part))
            for part, odds in zip(belief.parts(), belief.log_odds, strict=True)
            if part.kind >= RACK and odds > -limit
        }
        for part, odds, evidence, failures, often in zip(
            belief.parts(),
            map(float, belief.log_odds),
            belief.evidence,
            belief.failures,
            belief.often,
            strict=True,
        ):
            rivals = {}
            hard = often > 0.5 and failures >= 3
            if odds > (limit if hard else self.settings.strict_limit) and failures >= 2:
                if part in regions:
                    rivals = {
                        other: other_odds - odds
                        for other, (other_odds, tests) in regions.items()
                        if other != part and tests >= regions[part][1]
                    }
                else:
                    rivals = belief.rivals(part)
                rivals = {other: gain for other, gain in rivals.items() if gain > -limit}
                if not rivals:
                    accused[part] = self._verdict(part, odds, number)
            if odds > -limit - _CLEARED and evidence > _EXPLAINED:
                rivals[part] = 0.0
            for other, gain in rivals.items():
                suspected[other] = max(odds + gain, suspected.get(other, -math.inf))
        self.verdicts = accused
        self._accused[:] = False
        self._accused[[part.first for part in accused if part.kind == NODE]] = True
        self._cut[:] = any(part.kind == RAIL for part in accused)
        for part in accused:
            if part.kind in (RACK, SWITCH):
                self._cut |= (self.topology.rack if part.kind == RACK else self.topology.switch) == part.first
        self._open = sorted(
            (
                (odds, part)
                for part, odds in suspected.items()
                if part not in accused and self._is_testable(part)
            ),
            reverse=True,
        )

    def _is_testable(self, part: Part) -> bool:
        """Return whether a part can be tested without accused nodes and connections."""
        if part.kind == LINK:
            ends = list(part[1:])
            return not (
                self._accused[ends].any() or (self._cut[ends].any() and np.ptp(self.topology.rack[ends]))
            )
        return part.kind == NODE or not self._cut.all()

    def _verdict(self, part: Part, odds: float, number: int) -> Verdict:
        before = self.verdicts.get(part)
        number = before.round if before else number
        evidence = [each for each in self._bad if self._is_concerned(part, each[2])]
        slow = all(each[3] == "slow" for each in evidence)
        texts = tuple(
            Evidence(r, kind.name.lower(), tuple(map(int, nodes)), what) for r, kind, nodes, what in evidence
        )
        name, numbers, card = part.name, part[1 : 3 if part.kind == LINK else 2], -1
        if part.kind == NODE:
            card = self._card(part.first)
            name = "card" if card >= 0 else name
        return Verdict(name, numbers, card, odds, slow, number, texts)

    def _is_concerned(self, part: Part, nodes: Ints) -> bool:
        if part.kind == NODE:
            return part.first in nodes
        if part.kind == LINK:
            return part.first in nodes and part.second in nodes
        regions = self.topology.rack if part.kind in (RACK, RAIL) else self.topology.switch
        inside = regions[nodes]
        return len(np.unique(inside)) > 1 and (part.kind == RAIL or part.first in inside)

    def _card(self, node: int) -> int:
        """Return the card that a node's failed tests name, or -1 if they differ or name none.

        A failure names the faulty card with probability 0.95, a faulty node names one card with probability 0.05.
        """
        masks = self.belief.failed_cards(node)
        odds = {
            card: sum(math.log(0.95 / 0.05) * (1 if mask == 1 << card else -1) for mask in masks)
            for card in {mask.bit_length() - 1 for mask in masks if mask}
        }
        best = max(odds, key=odds.__getitem__, default=-1)
        return best if best >= 0 and odds[best] > 0 else -1

    # -- the next round -----

    def propose(self) -> tuple[str, Round]:
        """Return the purpose and the tests of the next round; no tests if the search has ended."""
        number = len(self.rounds)
        nodes = np.arange(self.topology.nodes)
        if number == 0:
            return "each node by itself", Round.of_tests(
                (Kind.SELF, nodes[node : node + 1]) for node in nodes
            )
        if number == 1:
            suspects = self._open_nodes()
            tests = [(Kind.SELF, np.array([node])) for node in sorted(suspects)]
            free = np.array([node for node in nodes if node not in suspects], np.int64)
            pairs = [(Kind.GROUP, group) for group in self._pairs_in_racks(free)]
            return "pairs inside racks", Round.of_tests(tests + pairs)
        return self._later_round()

    def _later_round(self) -> tuple[str, Round]:
        if not self.verdicts and not self._likely_suspects():
            purpose, broad = next(self._broad, ("", []))
            if broad:
                kept = ((kind, group[~self._accused[group]]) for kind, group in broad)
                return purpose, Round.of_tests((kind, group) for kind, group in kept if len(group))
        return "suspects", Round.of_tests(self._suspect_tests(np.zeros(self.topology.nodes, bool)))

    def _likely_suspects(self) -> bool:
        """Return whether the fault is probably among the suspects, so that other tests would be wasted."""
        return sum(1 / (1 + math.exp(-odds)) for odds, _ in self._open) > _LIKELY

    def _open_nodes(self) -> set[int]:
        return {part.first for _, part in self._open if part.kind == NODE}

    def _good_nodes(self, used: Bools) -> Ints:
        """Return nodes that passed with others, are not suspected, and are free."""
        good = (self.belief.passes_network > 0) & ~self._accused & ~used
        good[list(self._open_nodes())] = False
        return np.flatnonzero(good)

    def _suspect_tests(self, used: Bools) -> list[tuple[Kind, Ints]]:
        tests: list[tuple[Kind, Ints]] = []

        def add(kind: Kind, group: Ints) -> None:
            used[group] = True
            tests.append((kind, group))

        def pair_or_self(node: int, alone: bool) -> None:
            if alone:
                add(Kind.SELF, np.array([node]))
            elif (partner := partners(node)) is not None:
                add(Kind.GROUP, np.array([node, partner]))

        for group in self._to_sweep:
            if not used[group].any():
                add(Kind.SWEEP, group[~self._accused[group]])
        self._to_sweep = []
        splitting = [] if tests or not self.belief.scale else self._split_suspects(used)
        for group in splitting:
            add(Kind.GROUP, group)
        together = self._to_repeat()
        partners = self._partners(used)
        for _, part in self._open:
            if part.kind == LINK:
                for group in self._link_tests(part, part in together, used, partners):
                    add(Kind.GROUP, group)
            elif part.kind == NODE:
                waits = splitting or used[part.first] or any(part.first in link[1:] for link in together)
                alone = (
                    self.belief.place(part.first)[0] > _ANYWHERE
                    and self.belief.passes_network[part.first] > 0
                )
                if not waits:
                    pair_or_self(part.first, alone)
            elif not splitting and (pair := self._pair_across(part, used)) is not None:
                add(Kind.GROUP, pair)
        for node in np.flatnonzero((self.belief.passes_network == 0) & ~self._accused):  # nobody is left out
            if not used[node]:
                pair_or_self(int(node), False)
        return tests

    def _link_tests(
        self, link: Part, together: bool, used: Bools, partners: Callable[[int], int | None]
    ) -> Iterator[Ints]:
        """Yield the ends of a link together, or each with another node, to tell the link from its ends."""
        ends = np.array(link[1:])
        if together and not used[ends].any():
            yield ends
        elif not together:
            free = ends[~used[ends] & ~self._accused[ends]]
            used[ends] = True  # so that they are not paired with each other
            for end in free:
                if (partner := partners(int(end))) is not None:
                    yield np.array([end, partner])

    def _to_repeat(self) -> set[Part]:
        """Return the suspected links between nodes that are probably healthy whose ends are tested together now."""
        faulty = {part.first for odds, part in self._open if part.kind == NODE and odds > 0}
        return {
            link
            for _, link in self._open
            if link.kind == LINK
            and faulty.isdisjoint(link[1:])
            and len(self.rounds) % _TOGETHER[self.belief.fires_often(link) > 0.5] == 1
        }

    def _partners(self, used: Bools) -> Callable[[int], int | None]:
        order = self.random.permutation(self._good_nodes(used))

        def partner(node: int) -> int | None:
            met = self._met.setdefault(node, set())
            free = order[~used[order]]
            near = free[self.topology.rack[free] == self.topology.rack[node]]
            far = free[: 0 if self._cut[node] else len(met) + 1]
            candidates = [int(each) for each in (*near, *far[~self._cut[far]])]
            for candidate in candidates:
                if candidate not in met and candidate != node:
                    met.add(candidate)
                    return candidate
            met.clear()
            return candidates[0] if candidates else None

        return partner

    def _pair_across(self, part: Part, used: Bools) -> Ints | None:
        """Return a good pair of nodes that exercises a rack, switch or rail, or None."""
        good = self.random.permutation(self._good_nodes(used))
        regions = self.topology.rack if part.kind in (RACK, RAIL) else self.topology.switch
        here = regions[good] == (regions[good[0]] if part.kind == RAIL and len(good) else part.first)
        others = good[~here]
        if part.kind == RACK and here.any():  # the same switch, so that only the rack is new
            near = others[self.topology.switch[others] == self.topology.switch[good[here][0]]]
            others = near if len(near) else others
        suspected = {each.first for _, each in self._open if each.kind == part.kind}
        proven = others[~np.isin(regions[others], list(suspected))]
        others = proven if len(proven) else others
        return np.array([good[here][0], others[0]]) if here.any() and len(others) else None

    def _split_suspects(self, used: Bools) -> list[Ints]:
        """Split the suspects of a failure at scale; proven-good nodes fill each part up to the size that failed."""
        size = self.belief.scale
        odds = [(odds, part.first) for odds, part in self._open if part.kind == NODE and not used[part.first]]
        suspects = [
            node for value, node in odds if value > odds[0][0] - 4 and self.belief.place(node)[2] > _SCALE
        ]
        nodes = self.topology.nodes
        if not suspects:
            return []
        tested = max(1, min(_PARTS_OF_A_SPLIT, nodes // (_SHARE_OF_A_SPLIT * size)))
        pieces = np.array_split(self.random.permutation(suspects), min(tested + 2, len(suspects)))
        fillers = self.random.permutation(np.setdiff1d(self._good_nodes(used), suspects))
        groups = []
        for piece in pieces[:tested]:
            missing = max(0, size - len(piece))
            if missing > len(fillers):
                break
            groups.append(np.concatenate([piece, fillers[:missing]]))
            fillers = fillers[missing:]
        return groups

    # -- broad rounds -----

    def _broad_rounds(self) -> Iterator[tuple[str, list[tuple[Kind, Ints]]]]:
        nodes = self.topology.nodes
        everyone = np.arange(nodes)
        if pairs := self._pairs_between():
            yield "between racks", [(Kind.GROUP, pair) for pair in pairs]
        size = max(2, round(math.sqrt(nodes)))
        yield f"groups of about {size}", [(Kind.GROUP, group) for group in self._groups(size)]
        for _ in range(nodes // _NODES_OF_A_REPETITION):
            pairs = self._pairs_in_racks(self.random.permutation(nodes))
            yield "repetition", [(Kind.GROUP, pair) for pair in pairs]
        self._swept_all = True
        yield "all links", [(Kind.SWEEP, everyone)]
        for parts in (4, 2):
            if nodes // parts > 1.5 * size:
                groups = np.array_split(self.random.permutation(nodes), parts)
                yield f"groups of about {nodes // parts}", [(Kind.GROUP, group) for group in groups]
        while True:
            healthy = ~self._accused
            links = self.belief.sweeps >= self.settings.exposures
            if links and (self.belief.passes_any[healthy] >= self.settings.exposures).all():
                return
            if self._time_spent("repetition") > self._time_spent("all links") and not links:
                yield "all links", [(Kind.SWEEP, everyone)]
            else:
                pairs = self._pairs_in_racks(self.random.permutation(nodes))
                yield "repetition", [(Kind.GROUP, pair) for pair in pairs]

    def _time_spent(self, purpose: str) -> float:
        return sum(each.node_hours for each in self.rounds if each.purpose == purpose)

    def _pairs_between(self) -> list[Ints]:
        """Return disjoint pairs such that each rack, and each switch, is crossed by one."""
        pairs, used = [], np.zeros(self.topology.nodes, bool)
        for regions in (self.topology.switch, self.topology.rack):
            around = self.topology.switch if regions is self.topology.rack else np.zeros_like(regions)
            free = [
                self.random.choice(inside)
                for region in np.unique(regions)
                if len(inside := np.flatnonzero((regions == region) & ~used))
            ]
            free.sort(key=lambda node: int(around[node]))
            pairs += [np.array(free[index : index + 2]) for index in range(0, len(free) - 1, 2)]
            used[np.concatenate([[], *pairs]).astype(np.int64)] = True
        return pairs

    def _pairs_in_racks(self, nodes: Ints) -> list[Ints]:
        """Return disjoint pairs, inside racks as far as possible; one group has three if their number is odd."""
        nodes = nodes[np.argsort(self.topology.rack[nodes], kind="stable")]
        rack = self.topology.rack[nodes]
        first = np.searchsorted(rack, rack)
        odd = (np.arange(len(nodes)) - first) % 2 == 0
        last = np.append(rack[1:] != rack[:-1], True) if len(rack) else odd
        single = odd & last
        order = np.concatenate([nodes[~single], nodes[single]])
        if len(order) < 2:
            return []
        pairs = list(order[: len(order) // 2 * 2].reshape(-1, 2))
        if len(order) % 2:
            pairs[-1] = np.append(pairs[-1], order[-1])
        return pairs

    def _groups(self, size: int) -> list[Ints]:
        """Return disjoint groups of about `size` nodes, each of at least two racks but of few, in random order."""
        rack = self.topology.rack
        piece = max(1, size // 2)
        pieces: dict[int, list[Ints]] = {}
        for number in self.random.permutation(np.unique(rack)):
            inside = self.random.permutation(np.flatnonzero(rack == number))
            for index in range(max(1, len(inside) // piece)):
                pieces.setdefault(index, []).append(inside[index * piece : (index + 1) * piece])
            left = inside[max(1, len(inside) // piece) * piece :]
            pieces[0][-1] = np.concatenate([pieces[0][-1], left])
        groups: list[Ints] = []
        current: list[Ints] = []
        for part in (part for layer in pieces.values() for part in layer):
            current.append(part)
            if sum(map(len, current)) >= size and (len(current) > 1 or len(np.unique(rack)) == 1):
                groups.append(np.concatenate(current))
                current = []
        if current:
            rest = np.concatenate(current)
            if groups and len(rest) < size / 2:
                groups[-1] = np.concatenate([groups[-1], rest])
            else:
                groups.append(rest)
        return groups

    def _result(self, ended: str) -> Found:
        passes = self.belief.passes_any[~self._accused]
        fewest = int(passes.min()) if len(passes) else 0
        excluded = 1 - (1 - self.settings.confidence) ** (1 / fewest) if fewest else 1.0
        suspects = [(part, odds) for odds, part in self._open]
        return Found(list(self.verdicts.values()), suspects, self.rounds, excluded, ended, self.settings)


def isolate(
    topology: Topology,
    runner: Runner,
    settings: Settings | None = None,
    progress: Callable[[RoundSummary], None] = lambda each: None,
) -> Found:
    """Search for faulty parts.

    Args:
        topology: racks and switches of the nodes.
        runner: runs the tests of each round.
        settings: budget and confidence.
        progress: called after each round.
    """
    return Search(topology, settings or Settings()).run(runner, progress)


__all__ = ["Evidence", "Found", "RoundSummary", "Search", "Settings", "Verdict", "isolate"]
