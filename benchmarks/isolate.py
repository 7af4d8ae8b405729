"""Faulty parts of a simulated cluster: the search of isthmus, halving, and DLRover's pairing, on the same faults.

Every method gets the same tests, durations and noise. Halving is run as one does it by hand, and again with the
repeats and retries that it needs to reach the confidence of the search. Goals: 1 to 32 hard faults exactly found in
at most 4 rounds; a fault that fires with probability 0.2 found in at least 99 % of the searches; false accusations in
at most 0.1 % of them; a bad link named as a link; node-hours below those of both ways of halving, in each row.
"""

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np
from harness import RESULTS, commit, print_table, save
from isolate_baselines import halving, pairing

from isthmus_cluster.isolate.rounds import Topology
from isthmus_cluster.isolate.search import Settings, isolate
from isthmus_cluster.isolate.simulate import Durations, Fault, Simulator

NOISE = 1e-4
HARD_ROUNDS = 4
RACK, CARDS = 16, 8
RACKS_OF_A_SWITCH = {128: 2, 1024: 4, 8192: 4}
TRIALS = {128: 200, 1024: 30, 8192: 2}
MORE_TRIALS = {
    "intermittent 0.2, node": {128: 600, 1024: 150, 8192: 3},
    "intermittent 0.2, port": {128: 300, 1024: 80, 8192: 3},
    "intermittent 0.2, link": {128: 100, 1024: 12, 8192: 1},
    "none": {128: 40, 1024: 5, 8192: 1},
}
UNFAIR = (
    "The tests are simulated: durations are assumptions (see settings), and faults fire independently in "
    "each test. All methods use tests of the same length, while halving by hand restarts the training "
    "job, which takes longer. Halves of a round run at the same time. 'halving' clears a half by one pass"
    " and gives up when both halves pass; 'halving_sure' repeats each half until it fails or has passed "
    "as often as the search requires, stops at the first failure, and splits again at random, 20 times, "
    "when both halves pass; of a pair that fails while both nodes pass it names the link. Both end with "
    "nodes by themselves, where a faulty network port does not show, so they miss those. Halving and "
    "pairing are counted as right if they name the node of a faulty card; they cannot name racks, "
    "switches or rails. Only the search uses sweeps of single links, whose step is assumed to take 0.02 "
    "s; 'link, steps of 0.05 s' shows what that is worth. Where halving gives up without a result it may be cheaper: "
    "'below_halving' compares node-hours per fault found, 'below_halving_in_total' the node-hours alone. Without a "
    "fault, halving stops after one round, the search when it has excluded faults that fire with probability 0.2."
)
Faults = Callable[[np.random.Generator, Topology], list[Fault]]


def _nodes(random: np.random.Generator, topology: Topology, number: int) -> list[int]:
    return [int(node) for node in random.choice(topology.nodes, number, replace=False)]


def hard(number: int) -> Faults:
    """Return a maker of `number` hard faults: nodes, single cards and network ports in turn."""

    def make(random: np.random.Generator, topology: Topology) -> list[Fault]:
        kinds = random.permutation(np.arange(number) % 3)
        return [
            Fault(
                ("node", "card", "port")[kind],
                node,
                int(random.integers(topology.cards)) if kind == 1 else -1,
            )
            for kind, node in zip(kinds, _nodes(random, topology, number), strict=True)
        ]

    return make


def node(**values: Any) -> Faults:
    """Return a maker of one faulty node."""
    return lambda random, topology: [Fault(first=_nodes(random, topology, 1)[0], **values)]


def link(firing: float = 1.0) -> Faults:
    """Return a maker of one bad link between any two nodes."""

    def make(random: np.random.Generator, topology: Topology) -> list[Fault]:
        first, second = _nodes(random, topology, 2)
        return [Fault("link", first, second, firing)]

    return make


def region(kind: str) -> Faults:
    """Return a maker of one faulty rack, switch or rail."""

    def make(random: np.random.Generator, topology: Topology) -> list[Fault]:
        numbers = {"rack": topology.rack.max(), "switch": topology.switch.max(), "rail": topology.cards - 1}
        return [Fault(kind, int(random.integers(numbers[kind] + 1)))]

    return make


def cases(nodes: int) -> dict[str, Faults]:
    """Return the rows of the table for a number of nodes."""
    root = int(nodes**0.5)
    return {
        **{f"{number} hard": hard(number) for number in (1, 2, 4, 8, 16, 32)},
        "intermittent 0.2, node": node(kind="node", firing=0.2),
        "intermittent 0.2, port": node(kind="port", firing=0.2),
        "intermittent 0.2, link": link(0.2),
        "slow node": node(kind="slow"),
        "link": link(),
        "link, steps of 0.05 s": link(),
        "rack": region("rack"),
        "switch": region("switch"),
        "rail": region("rail"),
        f"scale, {root} nodes": node(kind="scale", size=root),
        f"scale, {nodes // 4} nodes": node(kind="scale", size=nodes // 4),
        "none": lambda random, topology: [],
    }


def row(nodes: int, name: str, share: float) -> dict[str, Any]:
    """Search in this share of the trials and return the shares and means."""
    make = cases(nodes)[name]
    trials = max(1, round(share * MORE_TRIALS.get(name, TRIALS)[nodes]))
    topology = Topology.regular(nodes, RACK, RACKS_OF_A_SWITCH.get(nodes, 4), CARDS)
    durations = Durations(step=0.05) if "0.05 s" in name else Durations()
    exposures = Settings(noise=NOISE).exposures
    repeats = exposures if name.startswith("intermittent") else 1
    results = []
    for seed in range(trials):
        random = np.random.default_rng([nodes, seed, len(name)])
        faults = make(random, topology)
        want = {fault.verdict for fault in faults}
        by_node = {(part if part != "card" else "node", numbers) for part, numbers, _ in want}

        def simulator(faults: list[Fault] = faults, seed: int = seed) -> Simulator:
            return Simulator(topology, faults, durations, NOISE, np.random.default_rng(seed))

        begin = time.perf_counter()
        found = isolate(topology, simulator(), Settings(noise=NOISE, seed=seed))
        taken = time.perf_counter() - begin
        halves, sure, pairs = simulator(), simulator(), simulator()
        named = [
            {accused[:2] for accused in accuse} == by_node
            for accuse in (halving(halves), halving(sure, repeats=repeats, retries=20), pairing(pairs))
        ]
        results.append(
            (
                found.accused_parts() == want,
                found.accused_parts(HARD_ROUNDS) == want == {v for v in found.accused_parts() if v in want},
                want <= found.accused_parts(),
                bool(found.accused_parts() - want),
                len(found.rounds),
                found.tests,
                found.node_hours,
                *(each.node_seconds / 3600 for each in (halves, sure, pairs)),
                *named,
                taken,
            )
        )
    columns = np.array(results, float)
    keys = "exact exact_in_4 found false rounds tests hours halving sure pairing named_h named_s named_p cpu"
    mean = dict(zip(keys.split(), columns.mean(0).tolist(), strict=True))
    right, false = int(columns[:, 2].sum()), int(columns[:, 3].sum())
    return {
        "nodes": nodes,
        "faults": name,
        "trials": trials,
        "exact": mean["exact"],
        "exact_by_round_4": mean["exact_in_4"],
        "found": mean["found"],
        "found_interval": interval(right, trials),
        "trials_with_false_accusation": false,
        "false_interval": interval(false, trials),
        "rounds_median": float(np.median(columns[:, 4])),
        "rounds_most": float(columns[:, 4].max()),
        "tests": mean["tests"],
        "node_hours": mean["hours"],
        "halving_node_hours": mean["halving"],
        "halving_found": mean["named_h"],
        "halving_sure_node_hours": mean["sure"],
        "halving_sure_found": mean["named_s"],
        "pairing_node_hours": mean["pairing"],
        "pairing_found": mean["named_p"],
        "below_halving": cheaper(mean["hours"], mean["found"], mean["halving"], mean["named_h"]),
        "below_halving_sure": cheaper(mean["hours"], mean["found"], mean["sure"], mean["named_s"]),
        "below_halving_in_total": mean["hours"] < mean["halving"],
        "seconds_of_search": mean["cpu"],
    }


def cheaper(hours: float, found: float, other_hours: float, other_found: float) -> bool:
    """Return whether a method takes fewer node-hours per fault found than another one; never if it finds none."""
    return hours * other_found < other_hours * found


def interval(hits: int, trials: int) -> list[float]:
    """Return the 95 % confidence interval of a share (Wilson 1927)."""
    z, share = 1.96, hits / trials
    centre = share + z * z / (2 * trials)
    half = z * (share * (1 - share) / trials + z * z / (4 * trials**2)) ** 0.5
    return [max(0.0, centre - half) / (1 + z * z / trials), min(1.0, (centre + half) / (1 + z * z / trials))]


def totals(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the false accusations over all rows, by the number of nodes."""
    found = {}
    for nodes in sorted({each["nodes"] for each in rows}):
        these = [each for each in rows if each["nodes"] == nodes]
        false, trials = (
            sum(each[key] for each in these) for key in ("trials_with_false_accusation", "trials")
        )
        found[nodes] = {
            "trials": trials,
            "trials_with_false_accusation": false,
            "false_interval": interval(false, trials),
        }
    return found


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=list(TRIALS))
    parser.add_argument("--faults", default="", help="rows whose name contains this")
    parser.add_argument("--share", type=float, default=1.0, help="of the trials")
    options = parser.parse_args()
    names = [(nodes, name) for nodes in options.nodes for name in cases(nodes) if options.faults in name]
    rows = []
    with ProcessPoolExecutor() as pool:
        for each in pool.map(row, *zip(*names, strict=True), [options.share] * len(names)):
            rows.append(each | {"commit": commit()})  # the rows of other numbers of nodes may be older
            if (
                not options.faults and options.share == 1
            ):  # each at once: the table takes a quarter of an hour
                every = others(options.nodes) + rows
                save("isolate", every, unfair=UNFAIR, settings=settings() | {"all_rows": totals(every)})
    print_table(rows)


def settings() -> dict[str, Any]:
    """Return what the rows have in common."""
    return {
        "durations": asdict(Durations()),
        "noise": NOISE,
        "search": asdict(Settings(noise=NOISE)) | {"node_hours": "unlimited", "seed": "the trial's number"},
        "rack": RACK,
        "racks_of_a_switch": RACKS_OF_A_SWITCH,
        "cards": CARDS,
    }


def others(nodes: list[int]) -> list[dict[str, Any]]:
    """Return the saved rows of other numbers of nodes."""
    path = RESULTS / "isolate.json"
    saved = json.loads(path.read_text())["rows"] if path.exists() else []
    return [each for each in saved if each["nodes"] not in nodes]


if __name__ == "__main__":
    main()
