"""Put together what the ranks of a job hold of a tensor, and compare it with another job's.

DTensor's placements and Megatron's attributes say how. Without them, the shapes of the other job leave few ways, and
the one with the least error counts: every rank holds the whole, a slice, or a term of the sum.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from isthmus.accuracy.metrics import Distance, of_statistics, of_values
from isthmus.accuracy.reading import Content
from isthmus.accuracy.statistics import Statistics

Parts = list[Content]


def distance(a: Parts, b: Parts) -> Distance:
    """Return the distance of a tensor between two jobs, each with the parts of its ranks."""
    if all(part.file for part in (*a, *b)):
        found = [
            replace(of_values(x, y), gathered=_text(how, how_b))
            for how, x in _values(a, b)
            for how_b, y in _values(b, a)
            if x.shape == y.shape
        ]
    else:
        dtypes = (a[0].dtype, b[0].dtype)
        found = [
            replace(of_statistics(x, y, count, dtypes), gathered=_text(how, how_b))
            for how, count, x in _statistics(a)
            for how_b, count_b, y in _statistics(b)
            if count == count_b
        ]
    if not found:
        if any(part.statistics is None for part in (*a, *b)):
            return Distance(0.0, False, "not measured")
        return Distance(math.inf, False, f"shapes {list(a[0].shape)} and {list(b[0].shape)}")
    return min(found, key=lambda each: each.error)


def differing_ranks(parts: Parts) -> bool:
    """Return whether ranks that hold the same tensor disagree."""
    if len(parts) < 2 or any(part.placement and set(part.placement.split()) != {"R"} for part in parts):
        return False
    first = parts[0]
    return any(part.shape != first.shape or distance([first], [part]).error > 0 for part in parts[1:])


def _text(a: str, b: str) -> str:
    return ", ".join(f"{side}: {how}" for side, how in (("A", a), ("B", b)) if how)


def _values(parts: Parts, other: Parts) -> Iterator[tuple[str, torch.Tensor]]:
    tensors = [part.rank.values(part) for part in parts]
    first, count = tensors[0], len(tensors)
    kind = parts[0].placement
    if count == 1:
        yield "", first
        return
    if kind and " " not in kind:  # one dimension of ranks
        yield kind, _joined(kind, tensors)
        return
    if all(t.shape == first.shape for t in tensors):
        yield "replicated", first
        if first.is_floating_point():
            total = torch.stack([t.double() for t in tensors]).sum(0)
            yield "sum", total
            yield "mean", total / count
    yield from _slices(tensors, {part.whole or part.shape for part in other})


def _joined(kind: str, tensors: list[torch.Tensor]) -> torch.Tensor:
    if kind == "P":
        return torch.stack([t.double() for t in tensors]).sum(0)
    return tensors[0] if kind == "R" else torch.cat(tensors, int(kind[2:-1]))


def _slices(tensors: list[torch.Tensor], shapes: set[tuple[int, ...]]) -> Iterator[tuple[str, torch.Tensor]]:
    first = tensors[0]
    for dim in range(first.dim()):
        rest = [(*t.shape[:dim], *t.shape[dim + 1 :]) for t in tensors]
        whole = (*first.shape[:dim], sum(t.shape[dim] for t in tensors), *first.shape[dim + 1 :])
        if all(each == rest[0] for each in rest) and (whole in shapes or len(shapes) > 1):
            yield f"slices along {dim}", torch.cat(tensors, dim)


def _statistics(parts: Parts) -> Iterator[tuple[str, int, Statistics]]:
    known = [(math.prod(part.shape), part.statistics) for part in parts if part.statistics is not None]
    if len(known) < len(parts):
        return
    kind = parts[0].placement
    count, first = known[0]
    if len(parts) == 1:
        yield "", count, first
        return
    if "P" not in kind and "S" not in kind:
        yield "replicated", count, first
    if kind == "" or "S" in kind:
        yield "slices", sum(n for n, _ in known), _together([(n, s) for n, s in known if n])


def _together(known: list[tuple[int, Statistics]]) -> Statistics:
    count = sum(n for n, _ in known) or 1
    finite = [(n, s) for n, s in known if not math.isnan(s.norm)]
    if not finite:
        return known[0][1] if known else Statistics(math.nan, math.nan, math.nan, math.nan)
    return Statistics(
        min(s.min for _, s in finite),
        max(s.max for _, s in finite),
        sum(n * s.mean for n, s in finite) / count,
        math.sqrt(sum(s.norm**2 for _, s in finite)),
        sum(s.nans for _, s in known),
        sum(s.infinities for _, s in known),
        sum(s.zeros for _, s in known),
    )
