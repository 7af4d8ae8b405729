"""The result of a search as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from isthmus_cluster.isolate.belief import LINK, NODE, PARTS, Part
from isthmus_cluster.isolate.rounds import Topology
from isthmus_cluster.isolate.search import Found, RoundSummary, Verdict
from isthmus_common.files import write_file
from isthmus_common.tables import align_columns
from isthmus_common.text import count

_MOST_EVIDENCE = 5


def node_name(topology: Topology, node: int) -> str:
    """Return the name of a node."""
    return topology.names[node] if topology.names else f"node{node}"


def progress_line(each: RoundSummary) -> str:
    """Return a line about a round that has ended."""
    return (
        f"round {each.number}: {each.purpose}: {count(each.tests, 'test')} on {count(each.nodes, 'node')}, "
        f"{each.bad} bad, {each.seconds:.1f} s, {each.node_hours:.4g} node-hours"
    )


def text(found: Found, topology: Topology) -> str:
    """Return verdicts with their evidence, remaining suspects, and what the search cost."""
    lines = []
    for verdict in found.verdicts:
        lines.append(
            f"{verdict_name(verdict, topology)}: {'slow' if verdict.slow else 'faulty'}, "
            f"log-odds {verdict.log_odds:+.1f}, since round {verdict.round}"
        )
        for each in verdict.evidence[:_MOST_EVIDENCE]:
            names = ", ".join(node_name(topology, node) for node in each.nodes[:4])
            more = f" and {len(each.nodes) - 4} more" if len(each.nodes) > 4 else ""
            lines.append(f"  round {each.round}: {each.kind} of {names}{more}: {each.what}")
        if len(verdict.evidence) > _MOST_EVIDENCE:
            lines.append(f"  and {count(len(verdict.evidence) - _MOST_EVIDENCE, 'more test')}")
    for part, odds in found.suspects:
        lines.append(f"{_part_name(part, topology)}: undecided, log-odds {odds:+.1f}")
    if not found.verdicts:
        lines.append("no fault found")
    lines.append(
        f"Faults of other nodes that fire in {100 * found.excluded:.0f} % of the tests or more are excluded "
        f"with {100 * found.settings.confidence:g} % confidence."
    )
    rows = [["rounds", "tests", "node-hours", "elapsed s"]]
    rows.append([str(len(found.rounds)), str(found.tests), f"{found.node_hours:.4g}", f"{found.seconds:.1f}"])
    return "\n".join([*lines, align_columns(rows), f"ended: {found.ended}"])


def verdict_name(verdict: Verdict, topology: Topology) -> str:
    """Return the accused part in words."""
    if verdict.part == "card":
        return f"card {verdict.card} of {node_name(topology, verdict.nodes[0])}"
    return _part_name(Part(PARTS.index(verdict.part), *verdict.nodes), topology)


def _part_name(part: Part, topology: Topology) -> str:
    if part.kind == NODE:
        return f"node {node_name(topology, part.first)}"
    if part.kind == LINK:
        return f"link {node_name(topology, part.first)} - {node_name(topology, part.second)}"
    names = {"rack": topology.racks, "switch": topology.switches}.get(part.name, ())
    return f"{part.name} {names[part.first] if names else part.first}"


def write(found: Found, topology: Topology, path: Path) -> None:
    """Write everything as JSON; nodes are numbers, whose names are in ``nodes``."""
    names = [node_name(topology, node) for node in range(topology.nodes)]
    write_file(path, (json.dumps({"nodes": names, **found.as_json()}, indent=1) + "\n").encode())
