"""The two methods that the search of ``isthmus cluster isolate`` is compared with.

The halving is the bisection of a job on 1024 cards by hand; the pairing follows the public description of DLRover's
network check: two rounds of pairs, the second one between the fastest and the slowest.
"""

import numpy as np

from isthmus_cluster.isolate.rounds import Kind, Round
from isthmus_cluster.isolate.simulate import Simulator


def halving(
    simulator: Simulator, *, slow: float = 1.25, repeats: int = 1, retries: int = 0
) -> set[tuple[str, tuple[int, ...], int]]:
    """Bisect as one does by hand, all halves of a round at the same time; return (part, nodes, card) found.

    Args:
        simulator: of the cluster; it counts the time.
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
