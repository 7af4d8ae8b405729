"""Put together what the ranks of a job hold of a tensor, and compare it with another job's.

Jobs of as many ranks are compared rank by rank. Else DTensor's placements and Megatron's attributes say how the parts
go together; without them, the shapes of the other job leave few ways, and the one with the least error counts: every
rank holds the whole, a slice, or a term of a sum or mean. Of ranks in a mesh, neighbours are put together first. Of
terms whose values are not in the dump, the means are compared, for the mean of a sum is the sum of the means.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product
from typing import Any, NamedTuple

import torch

from isthmus_diagnostics.accuracy.metrics import Distance, of_means, of_statistics, of_values, tolerance
from isthmus_diagnostics.accuracy.reading import Content
from isthmus_diagnostics.accuracy.statistics import Statistics

Parts = list[Content]


class _Whole(NamedTuple):
    """A tensor, put together.

    Attributes:
        how: in words.
        shape: None if the parts may be slices along any dimension.
        size: number of elements.
        values: None if the dump has none.
        statistics: None if only `values` are known.
        only_mean: whether of the statistics the mean alone is known.
    """

    how: str
    shape: tuple[int, ...] | None
    size: int
    values: torch.Tensor | None = None
    statistics: Statistics | None = None
    only_mean: bool = False


def distance(a: Parts, b: Parts, backward: bool = False, factor: float = 1.0) -> Distance:
    """Return the distance of a tensor between two jobs, each with the parts of its ranks.

    Args:
        a, b: parts in the order of ranks.
        backward: whether it is a gradient, which data parallelism scales by the number of ranks.
        factor: of `b`, which is divided by it.
    """
    if factor != 1.0:
        without = distance(a, [_divide_content(part, factor) for part in b], backward)
        how = ", ".join(filter(None, (without.gathered, f"B: by {factor:.6g}")))
        return replace(without, equal=False, gathered=how)
    if len(a) == len(b) and all(x.shape == y.shape for x, y in zip(a, b, strict=True)):
        found = [_distance_of_one(x, y) for x, y in zip(a, b, strict=True)]
        return max(found, key=lambda each: (each.error, not each.equal))
    if any(part.statistics is None for part in (*a, *b)):
        return Distance(0.0, False, "not measured")
    read = all(part.file for part in (*a, *b))
    ways = [_ways(a, read, backward and len(b) == 1), _ways(b, read, backward and len(a) == 1)]
    if min(len(a), len(b)) > 1:
        ways = [_first_if_alike(parts, read) + found for parts, found in zip((a, b), ways, strict=True)]
    dtypes = (a[0].dtype, b[0].dtype)
    tried = [] if (whole := _distance_if_replicated(a, b)) is None else [whole]
    for x, y in chain(product(*ways), _merge_sides(a, b, ways, backward) if read else ()):
        if _have_same_size(x, y):
            tried.append(replace(_distance(x, y, dtypes), gathered=_text(x, y)))
            if tried[-1].error <= tolerance(*dtypes):
                break
    if not tried:
        return Distance(math.inf, False, f"shapes {list(a[0].shape)} and {list(b[0].shape)}")
    return min(tried, key=lambda each: each.error)


def by_rank(a: Parts, b: Parts) -> list[float]:
    """Return the error of each rank's part: of jobs of as many ranks, or of one rank and several."""
    pairs = zip(a, b, strict=True) if len(a) == len(b) else product(a, b)
    return [_distance_of_one(x, y).error if x.shape == y.shape else math.inf for x, y in pairs]


def _merge_sides(
    a: Parts, b: Parts, ways: list[list[_Whole]], backward: bool
) -> Iterator[tuple[_Whole, _Whole]]:
    """Yield the ways of a side to make up the one part of the other by slices of a merged dimension."""
    if len(a) == 1:
        yield from ((ways[0][0], y) for y in _join_interleaved(b, a[0].shape, backward))
    elif len(b) == 1:
        yield from ((x, ways[1][0]) for x in _join_interleaved(a, b[0].shape, backward))


def _distance_if_replicated(a: Parts, b: Parts) -> Distance | None:
    """Return the largest distance of a rank's tensor from that of the one rank of the other side."""
    if min(len(a), len(b)) > 1 or any(
        part.placement.count("R") < len(part.placement.split()) for part in (*a, *b)
    ):
        return None
    if any(x.shape != a[0].shape for x in (*a, *b)):
        return None
    found = [_distance_of_one(x, y) for x in a for y in b]
    return replace(max(found, key=lambda each: (each.error, not each.equal)), gathered="replicated")


def worst(a: Parts, b: Parts) -> tuple[Content, Content]:
    """Return the parts of the rank that differs most between jobs of as many."""
    if any(x.shape != y.shape for x, y in zip(a, b, strict=True)):
        return a[0], b[0]
    return max(zip(a, b, strict=True), key=lambda parts: _distance_of_one(*parts).error)


def special(part: Content) -> int:
    """Return the number of NaN and infinities in a part."""
    return 0 if part.statistics is None else part.statistics.nans + part.statistics.infinities


def _distance_of_one(a: Content, b: Content) -> Distance:
    if a.statistics is None or b.statistics is None:
        return Distance(0.0, False, "not measured")
    if a.file and b.file:
        return of_values(a.rank.values(a), b.rank.values(b))
    return of_statistics(a.statistics, b.statistics, math.prod(a.shape), (a.dtype, b.dtype))


def _have_same_size(a: _Whole, b: _Whole) -> bool:
    return a.size == b.size and (a.values is None or b.values is None or a.shape == b.shape)


def _distance(a: _Whole, b: _Whole, dtypes: tuple[str, str]) -> Distance:
    if a.values is not None and b.values is not None:
        return of_values(a.values, b.values)
    assert a.statistics is not None and b.statistics is not None
    if a.only_mean or b.only_mean:
        return of_means(a.statistics, b.statistics, a.size)
    return of_statistics(a.statistics, b.statistics, a.size, dtypes)


def _text(a: _Whole, b: _Whole) -> str:
    return ", ".join(f"{side}: {whole.how}" for side, whole in (("A", a), ("B", b)) if whole.how)


def _ways(parts: Parts, read: bool, scaled: bool) -> list[_Whole]:
    known = [part.statistics for part in parts if part.statistics is not None]
    if len(parts) == 1:
        values = parts[0].rank.values(parts[0]) if read else None
        return [_Whole("", parts[0].shape, math.prod(parts[0].shape), values, known[0])]
    found = list(_of_values(parts, scaled) if read else _of_statistics(parts, known, scaled))
    found += [_scale_whole(each, len(parts)) for each in found if scaled and each.how.startswith("slices")]
    for inner in range(2, len(parts)):
        if len(parts) % inner == 0:
            found += _of_mesh([parts[i : i + inner] for i in range(0, len(parts), inner)], read, scaled)
    return found


def _of_mesh(rows: list[Parts], read: bool, scaled: bool) -> Iterator[_Whole]:
    """Put together first the ranks of each row of a mesh, then the rows."""
    ways = [{way.how: way for way in _first_if_alike(row, read) + _ways(row, read, scaled)} for row in rows]
    for how in ways[0]:
        inner = [found[how] for found in ways if how in found]
        if len(inner) == len(rows):
            held = [_hold_content(row[0], way) for row, way in zip(rows, inner, strict=True)]
            for outer in _first_if_alike(held, read) + _ways(held, read, scaled):
                words = f"{how}, then {outer.how}"
                yield outer._replace(how=words, only_mean=outer.only_mean or inner[0].only_mean)


def _first_if_alike(parts: Parts, read: bool) -> list[_Whole]:
    """Return the first part, if all are the same but for rounding."""
    first = parts[0]
    if "S" in first.placement or any(part.shape != first.shape for part in parts):
        return []
    if any(_distance_of_one(part, first).error > tolerance(first.dtype) for part in parts[1:]):
        return []
    values = first.rank.values(first) if read else None
    return [_Whole("replicated", first.shape, math.prod(first.shape), values, first.statistics)]


class _Values(NamedTuple):
    """Stands for a rank's dump: the values of its parts put together."""

    held: torch.Tensor | None

    def values(self, _: Content) -> torch.Tensor | None:
        return self.held


def _divide_content(part: Content, factor: float) -> Content:
    if part.statistics is None:
        return part
    values: Any = _Values(part.rank.values(part).double() / factor if part.file else None)
    return replace(
        part, statistics=_divide_statistics(part.statistics, factor)._replace(hash=""), rank=values
    )


def _divide_statistics(s: Statistics, factor: float) -> Statistics:
    least, most = sorted((s.min / factor, s.max / factor))
    return s._replace(min=least, max=most, mean=s.mean / factor, norm=s.norm / abs(factor))


def _hold_content(first: Content, whole: _Whole) -> Content:
    shape = whole.shape if whole.shape is not None else (whole.size,)
    statistics = whole.statistics or first.statistics
    held: Any = _Values(whole.values)
    return replace(first, shape=shape, statistics=statistics, placement="", rank=held)


def _of_values(parts: Parts, averaged: bool) -> Iterator[_Whole]:
    tensors = [part.rank.values(part) for part in parts]
    first, kind = tensors[0], parts[0].placement
    is_same = all(t.shape == first.shape for t in tensors)
    may_be_terms = is_same and "S" not in kind and "R" not in kind and first.is_floating_point()
    if may_be_terms and (first.numel() == 1 or not all(torch.equal(t, first) for t in tensors)):
        total = torch.stack([t.double() for t in tensors]).sum(0).to(first.dtype)
        yield _make_whole("sum", total)
        if averaged or total.numel() == 1:
            yield _make_whole("mean", total / len(tensors))
    for dim in range(first.dim()) if kind == "" or " " in kind else [int(kind[2:-1])] if "S" in kind else []:
        if len({(t.dim(), *t.shape[:dim], *t.shape[dim + 1 :]) for t in tensors}) == 1:
            yield _make_whole(f"slices along {dim}", torch.cat(tensors, dim))


def _join_interleaved(parts: Parts, shape: tuple[int, ...], scaled: bool) -> Iterator[_Whole]:
    """Put together slices along a dimension that a view has merged with the one before it, as batch and heads.

    Args:
        parts: in the order of ranks; if there are fewer slices, further ranks have others along the dimension.
        shape: of all parts together.
        scaled: also yield it divided by the number of ranks.
    """
    first = parts[0]
    dims = [dim for dim, (part, whole) in enumerate(zip(first.shape, shape, strict=False)) if part != whole]
    if len(first.shape) != len(shape) or len(dims) != 1 or any(part.shape != first.shape for part in parts):
        return
    (dim,), tensors = dims, [part.rank.values(part) for part in parts]
    for ranks in (n for n in range(2, len(parts) + 1) if len(parts) % n == 0):
        for blocks in (n for n in range(2, first.shape[dim]) if first.shape[dim] % n == 0):
            split = [t.unflatten(dim, (blocks, -1)) for t in tensors]
            rows = [torch.cat(split[i : i + ranks], dim + 1) for i in range(0, len(split), ranks)]
            whole = torch.cat([row.flatten(dim, dim + 1) for row in rows], dim)
            if whole.shape == shape:
                found = _make_whole(f"{blocks} times {ranks} slices along {dim}", whole)
                yield from (found, _scale_whole(found, len(parts))) if scaled else (found,)


def _make_whole(how: str, values: torch.Tensor) -> _Whole:
    return _Whole(how, tuple(values.shape), values.numel(), values)


def _of_statistics(parts: Parts, known: list[Statistics], averaged: bool) -> Iterator[_Whole]:
    counts = [math.prod(part.shape) for part in parts]
    kind, first = parts[0].placement, known[0]
    nans = max(each.nans for each in known)
    if len(set(counts)) == 1 and "S" not in kind:
        if counts[0] == 1 and "R" not in kind:
            total = sum(each.mean for each in known)
            yield _Whole("sum", None, 1, None, Statistics(total, total, total, abs(total), nans))
        if "R" not in kind and any(each != first for each in known):
            total = sum(each.mean for each in known)
            size = max(each.norm for each in known)
            term = Statistics(math.nan, math.nan, total, size, nans, max(each.infinities for each in known))
            yield _Whole("sum", None, counts[0], None, term, True)
            if averaged or counts[0] == 1:
                mean = term._replace(mean=total / len(known))
                yield _Whole("mean", None, counts[0], None, mean, True)
    if "R" not in kind and "P" not in kind:
        yield _Whole("slices", None, sum(counts), None, _merge_statistics(counts, known))


def _scale_whole(whole: _Whole, ranks: int) -> _Whole:
    s, values = whole.statistics, whole.values
    return whole._replace(
        how=f"{whole.how}, by {ranks}",
        statistics=None if s is None else _divide_statistics(s, ranks),
        values=None if values is None else values / ranks,
    )


def _merge_statistics(counts: list[int], known: list[Statistics]) -> Statistics:
    finite = [
        (n - s.nans - s.infinities, s)
        for n, s in zip(counts, known, strict=True)
        if n and not math.isnan(s.norm)
    ]
    if not finite:
        return known[0]
    return Statistics(
        min(s.min for _, s in finite),
        max(s.max for _, s in finite),
        sum(n * s.mean for n, s in finite) / sum(n for n, _ in finite),
        math.sqrt(sum(s.norm**2 for _, s in finite)),
        sum(s.nans for s in known),
        sum(s.infinities for s in known),
        sum(s.zeros for s in known),
    )
