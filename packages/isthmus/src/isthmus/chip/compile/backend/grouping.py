"""Grouping nodes of a graph that can become one node, and sorting the graph afterwards."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Hashable, Iterator

import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node


def groups_of(
    graph: Graph, fusible: Container[Node], key: Callable[[Node], Hashable]
) -> Iterator[list[Node]]:
    """Yield groups of connected fusible nodes with equal keys, such that each can be contracted without a cycle.

    A node joins the groups of its producers where no path leads out of the group and back into it.
    """
    grouping = _Grouping(graph)
    for node in graph.nodes:
        grouping.add(node)
        if node not in fusible:
            continue
        for producer in node.all_input_nodes:
            if producer in fusible and key(producer) == key(node):
                grouping.merge(producer, node)
    for members in grouping.groups():
        if members[0] in fusible:
            yield members


class _Grouping:
    """Disjoint sets of nodes, with what each set depends on; sets of nodes are bits of integers."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = list(graph.nodes)
        self._index = {node: i for i, node in enumerate(self._nodes)}
        self._before = _inputs(graph)
        self._members: list[int] = []  # set of each node
        self._depends: list[int] = []  # nodes that each node's set depends on, itself included

    def add(self, node: Node) -> None:
        """Add the next node of the graph, as a set of its own."""
        own = 1 << len(self._members)
        depends = own
        for each in self._before[node]:
            depends |= self._depends[self._index[each]]
        self._members.append(own)
        self._depends.append(depends)

    def merge(self, first: Node, second: Node) -> None:
        """Unite the sets of two nodes, unless that closes a cycle."""
        members = self._members[self._index[first]] | self._members[self._index[second]]
        inside = [i for i in range(len(self._members)) if members >> i & 1]
        for i in inside:
            for each in self._before[self._nodes[i]]:
                j = self._index[each]
                if not members >> j & 1 and self._depends[j] & members:
                    return
        depends = 0
        for i in inside:
            depends |= self._depends[i]
        for i, before in enumerate(self._depends):
            if before & members:
                self._depends[i] |= depends
        for i in inside:
            self._members[i] = members

    def groups(self) -> Iterator[list[Node]]:
        """The sets, each in the order of the graph."""
        for members in dict.fromkeys(self._members):
            yield [node for i, node in enumerate(self._nodes) if members >> i & 1]


def sort(graph: Graph) -> None:
    """Sort the nodes so that each follows its inputs; otherwise they keep their order."""
    before = _inputs(graph)
    position = {node: i for i, node in enumerate(graph.nodes)}
    missing = {node: len(inputs) for node, inputs in before.items()}
    users: dict[Node, list[Node]] = {node: [] for node in before}
    for node, inputs in before.items():
        for each in inputs:
            users[each].append(node)
    ready = [(position[node], node) for node, count in missing.items() if count == 0]
    heapq.heapify(ready)
    last = graph._root
    while ready:
        _, node = heapq.heappop(ready)
        last.append(node)
        last = node
        for user in users[node]:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, (position[user], user))


def _inputs(graph: Graph) -> dict[Node, set[Node]]:
    """Return the nodes that have to precede each node: its inputs, and for a random one the previous random one.

    A write to memory stays between what is before it and what is behind it.
    """
    found: dict[Node, set[Node]] = {}
    written: set[Node] = set()  # the last write
    since: set[Node] = set()  # nodes behind it
    random: set[Node] = set()
    for node in graph.nodes:
        found[node] = set(node.all_input_nodes) | written
        if _writes(node):
            found[node] |= since
            written, since = {node}, set()
        if isinstance(node.target, OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags:
            found[node] |= random
            random = {node}
        since.add(node)
    return found


def _writes(node: Node) -> bool:
    if isinstance(node.target, OpOverload):
        return node.target._schema.is_mutable
    return node.op == "output" or (node.op == "call_function" and node.is_impure())
