"""The graph of the values of a project: slots, and what gets from one to another."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from isthmus_migrate.flow.facts import ANY, KEYS

_DEEPEST = 2  # fields within fields
_SHALLOW = 1  # depth for containers where deeper paths would join too much
_MOST = 50  # slots that are assigned to one
_FEW = 32  # edges of a slot that are searched one by one
Node = tuple[str, tuple[str, ...]]  # a slot, and the path of an element in it


class _Edge(NamedTuple):
    kind: str  # "flow", "store" or "load"
    other: str
    key: str
    certain: bool


class Graph:
    """Slots and the flows between them."""

    def __init__(self) -> None:
        self._out: dict[str, dict[_Edge, None]] = defaultdict(dict)  # in the order in which they are added
        self._into: dict[str, dict[_Edge, None]] = defaultdict(dict)
        self._indices: dict[int, _Index] = {}  # indices of the edges of large containers, by their identity

    def add(self, kind: str, source: str, destination: str, key: str = "", certain: bool = True) -> bool:
        """Add an edge; return whether it is new.

        Args:
            kind: ``"flow"``; ``"store"`` for ``destination[key] = source``; ``"load"`` for
                ``destination = source[key]``.
            source: a slot.
            destination: a slot.
            key: the element.
            certain: False if the two may be different objects.
        """
        edge = _Edge(kind, destination, key, certain)
        if edge in self._out[source]:
            return False
        self._out[source][edge] = None
        self._into[destination][_Edge(kind, source, key, certain)] = None
        return True

    def link(self, one: str, other: str, certain: bool = True) -> bool:
        """Make two slots the same; return whether that is new."""
        new = self.add("flow", one, other, certain=certain)
        return self.add("flow", other, one, certain=certain) or new

    def slots(self) -> Iterator[str]:
        """Yield every slot."""
        yield from self._out.keys() | self._into.keys()

    def is_end(self, node: Node) -> bool:
        """Whether values get from a node to no other."""
        return next(self._next_nodes(node, certain=True), None) is None

    def forward(self, starts: Iterable[str], certain: bool = True) -> dict[Node, str]:
        """Return where the values of slots get, with the slot they start from.

        Args:
            starts: slots.
            certain: whether to follow certain edges only.
        """
        return self._reach({(each, ()): each for each in starts}, self._next_nodes, certain)

    def labels(self, starts: Sequence[str]) -> dict[str, frozenset[str]]:
        """Return for each slot the starts whose values get to it by certain flows."""
        found: dict[Node, int] = {(each, ()): 1 << index for index, each in enumerate(starts)}  # sets of bits
        queue = deque(found)
        waiting = set(found)
        while queue:
            node = queue.popleft()
            waiting.discard(node)
            bits = found[node]
            for other in self._next_nodes(node, certain=True):
                known = found.get(other, 0)
                if bits | known == known or len(other[1]) > _DEEPEST:
                    continue
                found[other] = bits | known
                if other not in waiting:
                    waiting.add(other)
                    queue.append(other)
        decoded = {
            bits: frozenset(each for index, each in enumerate(starts) if bits >> index & 1)
            for bits in set(found.values())
        }
        return {slot: decoded[bits] for (slot, path), bits in found.items() if not path}

    def nodes_leading_to(self, nodes: Iterable[Node]) -> set[Node]:
        """Return the nodes whose values get to some nodes by certain flows, and these."""
        return set(self._reach(dict.fromkeys(nodes, ""), self._back, True, _SHALLOW))

    def backward(
        self, ends: dict[str, str], certain: bool = True, path: tuple[str, ...] = ()
    ) -> dict[Node, str]:
        """Return from where values get to slots, with a label of the slot that they get to.

        Args:
            ends: labels by slot.
            certain: whether to follow certain edges only.
            path: of the element of the slots.
        """
        return self._reach({(each, path): label for each, label in ends.items()}, self._back, certain)

    def assigned_slots(self, slot: str) -> list[str]:
        """Return the slots whose values get to a slot as a whole; none if these are too many to mean much."""
        found = [slot]
        for each in found:
            edges = self._into.get(each, ())
            new = {edge.other for edge in edges if edge.kind == "flow" and edge.certain}
            found += sorted(new.difference(found))
            if len(found) > _MOST:
                return []
        return found[1:]

    def _reach(
        self, starts: dict[Node, str], step: object, certain: bool, deepest: int = 0
    ) -> dict[Node, str]:
        found = dict(starts)
        queue = list(starts)
        deepest = deepest or (_DEEPEST if certain else _SHALLOW)
        while queue:
            node = queue.pop()
            for other in step(node, certain):  # type: ignore[operator]
                if other not in found and len(other[1]) <= deepest:
                    found[other] = found[node]
                    queue.append(other)
        return found

    def _edges_along(
        self, edges: dict[_Edge, None] | None, kind: str, path: tuple[str, ...]
    ) -> Iterable[_Edge]:
        """Return the edges that may continue a path: a container with many elements has an index of them."""
        if edges is None or len(edges) < _FEW:
            return edges or ()
        found = self._indices.get(id(edges))
        if found is None or found.size != len(edges):
            found = self._indices[id(edges)] = _Index(edges, kind)
        return found.at(path)

    def _next_nodes(self, node: Node, certain: bool) -> Iterator[Node]:
        slot, path = node
        for kind, other, key, sure in self._edges_along(self._out.get(slot), "load", path):
            if certain and not sure:
                continue
            if kind == "flow":
                yield other, path
            elif kind == "store":
                yield other, (key, *path)
            elif path and _may_be_same(path[0], key):
                yield other, path[1:]

    def _back(self, node: Node, certain: bool) -> Iterator[Node]:
        slot, path = node
        for kind, other, key, sure in self._edges_along(self._into.get(slot), "store", path):
            if certain and not sure:
                continue
            if kind == "flow":
                yield other, path
            elif kind == "load":
                yield other, (key, *path)
            elif path and _may_be_same(path[0], key):
                yield other, path[1:]


class _Index:
    """The edges of a slot, by the keys of those that lead out of it as a container.

    Args:
        edges: of the slot.
        kind: of the edges that need a key.
    """

    def __init__(self, edges: dict[_Edge, None], kind: str) -> None:
        self.size = len(edges)
        self._others: list[tuple[int, _Edge]] = []
        self._keyed: dict[str, list[tuple[int, _Edge]]] = defaultdict(list)
        for place, edge in enumerate(edges):
            group = self._keyed[edge.key.removeprefix("=")] if edge.kind == kind else self._others
            group.append((place, edge))

    def at(self, path: tuple[str, ...]) -> Iterator[_Edge]:
        """Yield the edges that may continue a path, in the order in which they were added."""
        groups = [self._others]
        if path and path[0] == ANY:
            groups += self._keyed.values()
        elif path:
            keys = {path[0].removeprefix("="), ANY}
            groups += [self._keyed[key] for key in keys if key in self._keyed]
        yield from (edge for _, edge in heapq.merge(*groups))


def _may_be_same(one: str, other: str) -> bool:
    """Whether two keys may be the same; the keys of a container are no element of it.

    ``"=device"`` is the key itself, and no unknown one.
    """
    if one.startswith("=") or other.startswith("="):
        return one.removeprefix("=") == other.removeprefix("=")
    if KEYS in (one, other):
        return one == other
    return one == other or ANY in (one, other)
