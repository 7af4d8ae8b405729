"""A round of tests and its outcome, as arrays over the tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from isthmus_common.outliers import NORMAL

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Kind(IntEnum):
    """The work of a test.

    SELF: the compute burn on each card of one node, without network.
    GROUP: the burn, then collectives over all members; all-to-all uses every link between two members.
    SWEEP: pairwise exchanges of all members, step by step as in the rows of a Latin square; reports single links.
    """

    SELF = 0
    GROUP = 1
    SWEEP = 2


@dataclass(frozen=True)
class Topology:
    """The places of the nodes.

    Attributes:
        rack: int64 of shape (nodes,), the rack of each node.
        switch: int64 of shape (nodes,), the group of racks that share a switch above the racks.
        cards: cards of a node; card i of every node is on rail i.
        names: of the nodes; ``node<i>`` if empty.
        racks, switches: names by number; the number if empty.
    """

    rack: Ints
    switch: Ints
    cards: int = 8
    names: Sequence[str] = ()
    racks: Sequence[str] = ()
    switches: Sequence[str] = ()

    @classmethod
    def regular(cls, nodes: int, rack: int = 16, switch: int = 8, cards: int = 8) -> Topology:
        """Return nodes in racks of `rack` nodes, and racks under switches of `switch` racks."""
        racks = np.arange(nodes) // rack
        return cls(racks, racks // switch, cards)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.rack)


@dataclass(frozen=True)
class Round:
    """Tests that run at the same time on disjoint sets of nodes.

    Attributes:
        kind: int64 of shape (tests,), values of Kind.
        members: int64, the nodes of the tests, one test after the other.
        start: int64 of shape (tests + 1,), where the members of a test begin.
    """

    kind: Ints
    members: Ints
    start: Ints

    @classmethod
    def of_tests(cls, tests: Iterable[tuple[Kind, Sequence[int] | Ints]]) -> Round:
        """Return the round of these (kind, nodes)."""
        kinds, groups = [], []
        for kind, group in tests:
            kinds.append(int(kind))
            groups.append(np.asarray(group, np.int64))
        sizes = [len(group) for group in groups]
        members = np.concatenate(groups) if groups else np.empty(0, np.int64)
        return cls(
            np.array(kinds, np.int64), members, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        )

    @property
    def size(self) -> Ints:
        """Nodes of each test."""
        return np.diff(self.start)

    @property
    def test(self) -> Ints:
        """The test of each entry of `members`."""
        return np.repeat(np.arange(len(self.kind)), self.size)

    def nodes(self, test: int) -> Ints:
        """Return the nodes of a test."""
        return self.members[self.start[test] : self.start[test + 1]]

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True)
class Outcome:
    """The reports of the tests of a round.

    Attributes:
        failed: bool of shape (tests,): an error, a wrong result or a timeout.
        seconds: float64 of shape (tests,), the time that the nodes of a test were occupied.
        work: float64 of shape (tests,), the part of it after the start-up, in which slow tests are looked for.
        cards: int64 of shape (tests,), bit i is set if the failure names card i; 0 if it names none.
        links: int64 of shape (n, 2), the links that failed or were slow in sweeps.
        link_cards: int64 of shape (n,), as `cards`, for the links.
        causes: what a failed test said, by test; empty in simulations.
    """

    failed: Bools
    seconds: Floats
    work: Floats
    cards: Ints
    links: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))
    link_cards: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    causes: dict[int, str] = field(default_factory=dict)


class Runner(Protocol):
    """The runner of the tests: the simulator, processes on this machine, or agents on hosts."""

    def run(self, tests: Round) -> Outcome:
        """Run the tests of a round at the same time and return when all have ended."""
        ...


def robust_z(values: Floats, median: float, spread: float) -> Floats:
    """Return the distances from the median in robust standard deviations; 1 % of the median is added to those.

    Args:
        values: shape (n,).
        median: of healthy values.
        spread: median absolute deviation of healthy values.
    """
    return (values - median) / (NORMAL * spread + 0.01 * median + 1e-12)


def median_and_deviation(values: Floats) -> tuple[float, float]:
    """Return the median and the median absolute deviation."""
    median = float(np.median(values))
    return median, float(np.median(np.abs(values - median)))
