"""Pair the calls of two dumps by the structure of the job: module, number of its call, operator, occurrence.

Inside a module the sequences of operators are aligned, so that a fused operator, or the collectives of another
parallelism, leave the other pairs as they are.
"""

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TypeVar

from isthmus_diagnostics.accuracy.metrics import of_statistics
from isthmus_diagnostics.accuracy.ordering import clocks, peer
from isthmus_diagnostics.accuracy.reading import Content, Place, Rank, Recorded

T = TypeVar("T")
# Calls that are compared with each other to find those that read nearly the same.
_MOST_COMPARED = 4096
_NEAR = 0.05
_Keys = tuple[list[Hashable], list[Hashable]]  # keys of two sequences
# Operators that devices and versions choose among.
_SAME = {
    "aten::_unsafe_view": "aten::view",
    "aten::_reshape_alias": "aten::view",
    "aten::reshape": "aten::view",
    "aten::_to_copy": "aten::to",
}


@dataclass(eq=False)
class Pair:
    """A call in two jobs; on each side, one record of each rank.

    Attributes:
        a, b: records; one of them is empty if only one side has the call.
    """

    a: list[Recorded] = field(default_factory=list)
    b: list[Recorded] = field(default_factory=list)

    @property
    def is_matched(self) -> bool:
        """Whether both sides have the call."""
        return bool(self.a and self.b)

    @property
    def first(self) -> Recorded:
        """A record of the call."""
        return (self.a or self.b)[0]

    @property
    def is_module(self) -> bool:
        """Whether it is the call of a module."""
        return self.first.operator == "module"

    def inputs(self) -> Iterator[tuple[str, list[Content], list[Content]]]:
        """Yield the tensors that both sides read, with names."""
        return _match_calls([c.inputs for c in self.a], [c.inputs for c in self.b], self._is_same_overload)

    def outputs(self) -> Iterator[tuple[str, list[Content], list[Content]]]:
        """Yield the tensors that both sides return, with names."""
        return _match_calls([c.outputs for c in self.a], [c.outputs for c in self.b], self._is_same_overload)

    @property
    def _is_same_overload(self) -> bool:
        return self.a[0].operator == self.b[0].operator


def _match_calls(
    a: list[dict[str, Content]], b: list[dict[str, Content]], by_name: bool
) -> Iterator[tuple[str, list[Content], list[Content]]]:
    names = [(name, name) for name in a[0] if name in b[0]] if by_name else []
    for name, other in names or zip(a[0], b[0], strict=False):
        parts = [each[name] for each in a if name in each], [each[other] for each in b if other in each]
        if len(parts[0]) == len(a) and len(parts[1]) == len(b):
            yield name, *parts


def pairs(a: list[Rank], b: list[Rank]) -> list[Pair]:
    """Return the pairs in the order of the side with fewer ranks; calls of one side alone come where they ran."""
    steps = _steps(a) & _steps(b)
    rooted = all(rank.has_root for rank in (*a, *b))
    sides = _by_place(a, steps, rooted), _by_place(b, steps, rooted)
    found: list[Pair] = []
    for place in dict.fromkeys((*sides[0], *sides[1])):
        rows = [_rows(side.get(place, [])) for side in sides]
        here = list(_align(rows[0], rows[1], by_rank=len(a) == len(b)))
        found += _by_content(here) if len(a) == len(b) else here
    return _in_order(found, clocks(a) | clocks(b), by_b=len(b) < len(a))


def _steps(ranks: list[Rank]) -> set[int]:
    return {call.place.step for rank in ranks for call in rank.calls}


def _by_place(ranks: list[Rank], steps: set[int], rooted: bool) -> dict[Place, list[list[Recorded]]]:
    found: dict[Place, list[list[Recorded]]] = {}
    for rank in ranks:
        here: dict[Place, list[Recorded]] = {}
        for call in rank.calls:
            if call.place.step in steps:
                place = call.place
                if rank.has_root and not rooted:
                    place = place._replace(module=place.module.partition(".")[2])
                here.setdefault(place, []).append(call)
        for place, calls in here.items():
            found.setdefault(place, []).append(calls)
    return found


def _rows(ranks: list[list[Recorded]]) -> list[list[Recorded]]:
    """Return the calls of a place, each with its records of all ranks; calls of some ranks alone are on their own."""
    if not ranks:
        return []
    rows = [[call] for call in ranks[0]]
    for calls in ranks[1:]:
        merged: list[list[Recorded]] = []
        before = [row[0] for row in rows]
        lines = _keys(before, calls, lambda call: (key(call), call.line))  # ranks run one program
        for left, right in _aligned(lines, _keys(before, calls, key)):
            row = [] if left is None else rows[left]
            merged.append(row + ([] if right is None else [calls[right]]))
        rows = merged
    return rows


def _align(a: list[list[Recorded]], b: list[list[Recorded]], by_rank: bool) -> Iterator[Pair]:
    keys = _keys(a, b, lambda row: (key(row[0]), _members(row) if by_rank else ()))
    for left, right in _aligned(keys):
        yield Pair([] if left is None else a[left], [] if right is None else b[right])


def _by_content(found: list[Pair]) -> list[Pair]:
    """Pair calls of one place by their inputs, where the two jobs ran them in different orders.

    Threads, hooks and fused operators change the order of independent calls.
    """
    groups: dict[str, list[Pair]] = {}
    for pair in found:
        groups.setdefault(key(pair.first), []).append(pair)
    for group in groups.values():
        is_alone = {bool(pair.a) for pair in group if not pair.is_matched}
        if len(is_alone) > 1 or (len(group) > 1 and any(p.is_matched and not _fits(p) for p in group)):
            _reassign(group)
    return [pair for pair in found if pair.a or pair.b]


def _fits(pair: Pair) -> bool:
    return all(_read_contents(x) == _read_contents(y) for x, y in zip(pair.a, pair.b, strict=True))


def _reassign(group: list[Pair]) -> None:
    """Permute B's records among the pairs, for each rank; leave them if ranks would come apart."""
    ranks = sorted({call.rank for pair in group for call in (*pair.a, *pair.b)})
    sides = [
        [{call.rank: call for call in calls} for calls in side]
        for side in ([pair.a for pair in group], [pair.b for pair in group])
    ]
    rows: list[list[Recorded]] = [[] for _ in group]
    for rank in ranks:
        columns = ([row.get(rank) for row in side] for side in sides)
        for number, call in enumerate(_permuted(*columns)):
            rows[number] += [] if call is None else [call]
    if all(
        not pair.a or not row or _members(pair.a) == _members(row)
        for pair, row in zip(group, rows, strict=True)
    ):
        for pair, row in zip(group, rows, strict=True):
            pair.b = row


def _permuted(a: list[Recorded | None], b: list[Recorded | None]) -> list[Recorded | None]:
    """Return B's calls in the order of A's.

    Calls with equal inputs are paired first, then those with nearly equal ones, then those with similar ones.
    """
    found: list[Recorded | None] = [None] * len(a)
    left = [j for j, call in enumerate(b) if call is not None]  # not placed yet

    def place(is_alike: Callable[[Recorded, Recorded], bool], only_paired: bool = False) -> None:
        for i, call in enumerate(a):
            if call is None or found[i] is not None:
                continue
            order = [i, *(j for j in left if j != i)] if i in left else left
            for j in order:
                if only_paired and b[i] is None and a[j] is None:
                    continue  # both are alone: not in the order of the other job
                if (other := b[j]) is not None and is_alike(call, other):
                    found[i] = other
                    left.remove(j)
                    break

    place(lambda x, y: _read_contents(x) == _read_contents(y))
    if sum(call is not None and found[i] is None for i, call in enumerate(a)) * len(left) <= _MOST_COMPARED:
        place(_is_near, only_paired=True)
        place(_looks_alike, only_paired=True)
    for j in list(left):
        if found[j] is None:
            found[j] = b[j]
            left.remove(j)
    free = sorted((i for i, call in enumerate(found) if call is None), key=lambda i: a[i] is not None)
    for i, j in zip(free, left, strict=False):
        found[i] = b[j]
    return found


def _read_contents(call: Recorded) -> list[object]:
    """Return what a call reads, and the shapes that it returns."""
    inputs = [(name, each.shape, repr(each.statistics)) for name, each in call.inputs.items()]
    return [inputs, _shapes(call.outputs), [] if inputs else _numbers(call)]


def _is_near(a: Recorded, b: Recorded) -> bool:
    """Return whether two calls read the same but for rounding of the least precise dtype."""
    if not a.inputs or _shapes(a.inputs) != _shapes(b.inputs):
        return False
    return all(
        x.statistics is not None
        and y.statistics is not None
        and of_statistics(x.statistics, y.statistics, math.prod(x.shape), ("", "")).error <= _NEAR
        for x, y in zip(a.inputs.values(), b.inputs.values(), strict=True)
    )


def _looks_alike(a: Recorded, b: Recorded) -> bool:
    """Return whether two calls are of one line, with tensors of the same shapes and the same numbers."""
    looks = [(call.line, _shapes(call.inputs), _shapes(call.outputs), _numbers(call)) for call in (a, b)]
    return looks[0] == looks[1]


def _shapes(named: dict[str, Content]) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, each.shape) for name, each in named.items()]


def _numbers(call: Recorded) -> list[tuple[str, float]]:
    return [each for each in call.arguments.items() if isinstance(each[1], (int, float))]


def _members(row: list[Recorded]) -> tuple[int, ...]:
    return tuple(call.rank for call in row)


def _keys(a: list[T], b: list[T], of: Callable[[T], Hashable]) -> _Keys:
    return [of(each) for each in a], [of(each) for each in b]


def _aligned(*levels: _Keys) -> Iterator[tuple[int | None, int | None]]:
    """Align two sequences by their first keys, and what these leave unaligned on both sides by the next ones."""
    (a, b), *coarser = levels
    if a == b:
        yield from ((i, i) for i in range(len(a)))
        return
    for kind, i, i_end, j, j_end in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from zip(range(i, i_end), range(j, j_end), strict=True)
        elif kind == "replace" and coarser:
            for left, right in _aligned(*((x[i:i_end], y[j:j_end]) for x, y in coarser)):
                yield None if left is None else i + left, None if right is None else j + right
        else:
            yield from ((k, None) for k in range(i, i_end))
            yield from ((None, k) for k in range(j, j_end))


def key(call: Recorded) -> str:
    """Return what calls have in common that do the same: the operator, in-place or not, on any device."""
    if call.operator.startswith("optimizer::"):
        return "optimizer"
    base = call.operator.partition(".")[0]
    if "scaled_dot_product" in base:
        return "aten::scaled_dot_product_attention" + ("_backward" if "backward" in base else "")
    base = base.rstrip("_")
    if (other := peer(call)) is not None:
        return f"{base} {call.rank} {other}"
    return _SAME.get(base, base)


def _in_order(found: list[Pair], times: dict[int, int], by_b: bool) -> list[Pair]:
    """Sort by one side's order; a call of the other side alone follows the pair before it."""

    def sides(pair: Pair) -> tuple[list[Recorded], list[Recorded]]:
        return (pair.b, pair.a) if by_b else (pair.a, pair.b)

    def time(calls: list[Recorded]) -> int:
        return max(times[id(call)] for call in calls)

    position = {id(pair): float(time(sides(pair)[0])) for pair in found if sides(pair)[0]}
    last = -1.0
    others = [pair for pair in found if sides(pair)[1]]
    for pair in sorted(others, key=lambda each: time(sides(each)[1])):
        if sides(pair)[0]:
            last = max(last, position[id(pair)])
        else:
            position[id(pair)] = last + 0.5
    return sorted(found, key=lambda pair: (position[id(pair)], time(sides(pair)[0] or sides(pair)[1])))
