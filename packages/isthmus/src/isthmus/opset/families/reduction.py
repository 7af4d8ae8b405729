"""Sums, means, extremes, norms and scans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import denormals, special_values
from isthmus.opset.operator import CHOSEN, EXACT, Operator, Tolerance, accumulated, op
from isthmus.opset.reference import absolutely
from isthmus.opset.sampling import Array, Case, Maker

if TYPE_CHECKING:
    import torch

_SUM = accumulated(32, "pairwise or blocked sums; a loop over a whole row of a thousand would exceed it")
_PRODUCT = {
    "": Tolerance(64, 0, "one rounding for each factor"),
    **{half: Tolerance(0.51, 0, "computed in float32, rounded once") for half in dt.HALVES},
}
_DIMS: tuple[Any, ...] = ((-1,), (0, 2), (1,), [])


def _inputs(m: Maker, low: float = -2.7, high: float = 3.1) -> Iterator[tuple[str, Array, str]]:
    """(kind, tensor, model): three-dimensional, large, strided and empty tensors."""
    span: dict[str, Any] = {"low": low, "high": high}
    yield "contiguous", m.tensor(3, 17, 35, **span), "llama"
    yield "strided", m.tensor(3, 17, 13, layout="transposed", **span), "bert"
    yield "strided", m.tensor(3, 5, 19, layout="sliced", **span), "qwen_moe"
    yield "broadcast", m.tensor(3, 5, 7, layout="expanded", **span), ""
    if m.dtype in ("float32", "bfloat16"):
        yield "large", m.tensor(2, 3, 1031, **span), "llama"


def _over_dims(low: float = -2.7, high: float = 3.1, many: bool = True, **others: Any) -> Any:
    """Reductions over one dimension, or several if supported."""

    def samples(m: Maker) -> Iterator[Case]:
        for i in range(4):
            for kind, tensor, model in _inputs(m, low, high):
                if i and kind not in ("contiguous", "strided"):
                    continue
                dims: Any = list(_DIMS[i]) if many else _DIMS[i][0] if _DIMS[i] else 2
                yield m.case(kind, tensor, dims, keepdim=i == 1, model=model, **others)
        if many:
            images = m.tensor(2, 3, 4, 5, layout="channels_last", low=low, high=high)
            yield m.case("strided", images, [2, 3], **others)
        if m.dtype == "bool":  # a count beyond 16 bits
            yield m.case("large", m.values(np.ones((2, 70_001))), [1], **others)
        if m.dtype == "float16" and many:
            yield m.case("large", _wave(m), [1], **others)
        yield m.case("0-dim", m.tensor(low=low, high=high), [0] if many else 0, **others)
        yield m.case("zero-size", m.tensor(0, 5, low=low, high=high), [1] if many else 1, **others)
        if m.is_float:
            values = special_values(m.dtype, extremes=False)
            yield m.case("special", m.values([[v, 1.0] for v in values]), [1] if many else 1, **others)

    return samples


def _wave(m: Maker) -> Array:
    """Rows whose sums are small, those of their halves and of each 500 elements beyond float16."""
    return m.values(np.where(np.arange(8998) < 4500, 300.0, -300.0) * np.ones((2, 1)))


def _narrowed(samples: Any, *args: Any) -> Any:
    """Samples, and integers whose sum is beyond the narrower dtype that is asked for: it wraps around."""

    def made(m: Maker) -> Iterator[Case]:
        yield from samples(m)
        if m.dtype in ("int32", "int64"):
            for values in ([[1 << 30] * 5, [-(1 << 30)] * 5], [[(1 << 31) - 1, 3, 5]]):
                yield m.case("special", m.values(values), *args, dtype="int32")

    return made


def _distinct_over_dims(m: Maker) -> Iterator[Case]:
    """Samples without ties, for operators that return an index."""
    for dim in (0, 1, -1):
        yield m.case("contiguous", m.distinct(3, 5, 7), dim, keepdim=dim == 1, model="qwen_moe")
        yield m.case("strided", m.distinct(3, 5, 7, layout="transposed"), dim)
        yield m.case("strided", m.distinct(3, 5, 7, layout="sliced"), dim)
        yield m.case("contiguous", _ties(m), dim)
    if m.is_float:
        inf = float("inf")
        yield m.case("special", m.values([[inf, inf], [-inf, -inf], [float("nan"), 1.0]]), 1)
        for dim in (0, 1):
            yield m.case("special", _largest(m), dim)
    yield m.case("0-dim", m.tensor(), 0)
    yield m.case("zero-size", m.tensor(0, 5), 1)


def _ties(m: Maker) -> Array:
    """Rows with ties in maximum and minimum; the first index counts."""
    return m.values(m.integers(5, 23, high=4).view, m.dtype)


def _close(m: Maker) -> Array:
    """Adjacent values of the dtype, which are ties in a narrower dtype."""
    import ml_dtypes

    eps = float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).eps)
    return m.values([[1 + eps, 1.0, 1 + 2 * eps, 1 - eps], [1.0, 1 - eps, 1 - 2 * eps, 1 + eps]])


def _largest(m: Maker) -> Array:
    """The largest finite numbers before infinities, in rows and in columns; a row of -inf."""
    import ml_dtypes

    inf, most = float("inf"), float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).max)
    return m.values([[-inf, most, -most], [-inf, -inf, -inf], [-most, inf, -inf], [-inf, most, -most]])


def _whole(low: float = -2.7, high: float = 3.1, *args: Any, empty: bool = True) -> Any:
    def samples(m: Maker) -> Iterator[Case]:
        for kind, tensor, model in _inputs(m, low, high):
            yield m.case(kind, tensor, *args, model=model)
        if m.dtype == "bool":  # a count beyond 16 bits
            yield m.case("large", m.values(np.ones(70_001)), *args)
        if m.dtype == "float16":
            yield m.case("large", _wave(m), *args)
        yield m.case("0-dim", m.tensor(low=low, high=high), *args)
        if empty:
            yield m.case("zero-size", m.tensor(0, 3), *args)

    return samples


def _means(samples: Any, *args: Any) -> Any:
    """Samples, and values whose sum or number float16 cannot hold, although it holds the mean."""

    def made(m: Maker) -> Iterator[Case]:
        yield from samples(m)
        yield m.case("contiguous", m.tensor(5, 67, low=20_000, high=65_000), *args)
        yield m.case("special", m.values(np.zeros((3, 5))), *args)
        if m.dtype == "float16":  # the number and parts of the sum are beyond the dtype
            yield m.case("large", m.values(np.full((1, 70_001), 100.0)), *args)

    return made


def _powers_of_two(m: Maker) -> Array:
    """Many factors whose product is exact in any order: 1, -1, and few others."""
    factors = np.ones(70_001)
    factors[::4099], factors[7::4099], factors[-2:] = 2.0, -0.5, (-1.0, 4.0)
    return m.values(factors)


def _few_factors(m: Maker) -> Iterator[Array]:
    """Products that are beyond float16, and denormal, by factors that round nothing."""
    if m.is_float:
        for late in (float("inf"), float("nan")):  # after a factor of 0
            yield m.values([[2.0, 0.0, late, 1.0]])
        yield m.values([[70_000.0, 1.0, 2.0]])
        yield m.values([[1.0, float(denormals(m, 1).view[0]), 1.0]])


def _products(m: Maker) -> Iterator[Case]:
    yield from _whole(0.97, 1.03)(m)
    if not m.is_float:  # beyond 2^53
        yield m.case("special", m.values(np.full(37, 3)))
    for factors in _few_factors(m):
        yield m.case("special", factors)
    if m.dtype == "float32":
        yield m.case("large", _powers_of_two(m))


def _products_along(m: Maker) -> Iterator[Case]:
    yield from _over_dims(0.9, 1.1, many=False)(m)
    if not m.is_float:  # beyond 2^53
        yield m.case("special", m.values(np.full((2, 37), 3)), 1)
    for factors in _few_factors(m):
        yield m.case("special", factors, 1)
    if m.dtype == "float32":
        factors = _powers_of_two(m)
        yield m.case("large", factors, 0)
        yield m.case("large", m.values(np.resize(factors.view, (4133, 17))), -2, True)
        yield m.case("large", m.tensor(65_601, 2, 2, low=0.9, high=1.1), 2)
        yield m.case("large", m.tensor(2, 2, 65_601, low=0.9, high=1.1), 1)


def _chosen(m: Maker) -> Iterator[Case]:
    for keep in (False, True):
        yield m.case("contiguous", m.distinct(3, 37), 1, keepdim=keep, model="resnet")
        yield m.case("strided", m.distinct(5, 9, layout="transposed"), 0, keepdim=keep)
        yield m.case("contiguous", _ties(m), 1, keepdim=keep)
        if m.is_float:
            yield m.case("contiguous", _close(m), 1, keepdim=keep)
    yield m.case("contiguous", m.distinct(4, 11))
    if m.is_float:
        for dim in (0, 1, None):
            yield m.case("special", _largest(m), dim)
    yield m.case("0-dim", m.tensor())
    yield m.case("zero-size", m.tensor(0, 5), 1)


def _arrays(m: Maker) -> Iterator[Case]:
    for dim in (-1, 0):
        yield m.case("contiguous", m.tensor(3, 37), dim, model="qwen_moe")
        yield m.case("strided", m.tensor(5, 19, layout="transposed"), dim)
        yield m.case("strided", m.tensor(5, 19, layout="sliced"), dim)
    yield m.case("0-dim", m.tensor(), 0)
    yield m.case("zero-size", m.tensor(0, 5), 1)


def _norms(m: Maker) -> Iterator[Case]:
    for order in (2, 1, float("inf"), 3.0, float("-inf"), 0, 2.3, -1.7):
        yield m.case("contiguous", m.tensor(3, 37), order, None, False, model="llama")
        yield m.case("strided", m.tensor(5, 19, layout="transposed"), order, [1], True)
        missing = m.tensor(3, 67).view.copy()
        missing[[0, 1, 2], [0, 31, 66]] = np.nan
        yield m.case("special", m.values(missing), order, [1], False)
    for order in (1, float("inf")):  # without squares, which would be 0
        yield m.case("special", denormals(m, 3, 5), order, [1], False)
    if m.dtype == "float32":  # the last of many decides
        for order, last in ((float("inf"), -3.5), (float("-inf"), 0.25)):
            yield m.case("large", m.values(np.append(np.full(70_000, 1.5), last)), order, [0], False)
    if m.dtype != "float16":
        yield m.case("contiguous", m.tensor(3, 37, low=1e5, high=3e6), 2, [1], False)
    yield m.case("contiguous", m.tensor(3, 5, 7), 2, [0, 2], False)
    yield m.case("contiguous", m.values(m.integers(5, 23, high=3).view, m.dtype), 0, [1], False)  # a count
    # The sum of squares is beyond float16, its root is not.
    yield m.case("contiguous", m.tensor(3, 37, low=100, high=300), 2, None, False)
    yield m.case("0-dim", m.tensor(), 2)
    yield m.case("zero-size", m.tensor(0, 5), 2)
    if m.dtype in ("float32", "bfloat16"):
        yield m.case("large", m.tensor(4111), 2, model="llama")


def _norm_size(self: torch.Tensor, ord: Any, dim: Any, keepdim: bool, **_: Any) -> Any:
    import torch

    return torch.linalg.vector_norm(self, ord, dim, keepdim)


def _spread(
    self: torch.Tensor, dim: Any, correction: Any = 1, unbiased: bool = True, keepdim: bool = False
) -> Any:
    """Squares of distances from the mean, and what a rounding of the mean adds to them."""
    axes = dim or list(range(self.dim()))
    mean = self.mean(axes, True)
    distance = self - mean
    total = (distance * distance + (distance * mean).abs() + mean * mean * 2**-23).sum(axes, keepdim)
    return total * (2 / max(self.numel() // max(total.numel(), 1) - 1, 1))


def _variances(m: Maker) -> Iterator[Case]:
    for correction, dim in ((1, [2]), (0, [0]), (2, [1]), (0.5, [1]), (1.75, [2]), (-1, [2])):
        yield m.case("contiguous", m.tensor(3, 17, 35), dim, correction=correction, keepdim=correction == 0)
        yield m.case("strided", m.tensor(3, 17, 13, layout="transposed"), dim, correction=correction)
    yield m.case("contiguous", m.tensor(3, 5, 7), [0, 2], correction=1)
    for other in (None, 0, 2, 0.5):
        yield m.case("contiguous", m.tensor(3, 13), None, correction=other)
    if m.dtype != "float16":  # a mean whose square hides the variance in the compute dtype
        mean = 3e8 if m.dtype == "float64" else 3e4
        for rows in ([1], [0]):
            yield m.case("contiguous", m.tensor(67, 67, low=mean, high=mean + 5), rows, correction=1)
    if m.dtype == "float16":  # the sum of the squares, and their number, are beyond the dtype
        for rows in ([1], [0]):
            yield m.case("contiguous", m.tensor(331, 331, low=-40, high=50), rows, correction=1)
        yield m.case("large", m.tensor(2, 65_601), [1], correction=1)
    yield m.case("zero-size", m.tensor(0, 5), [1])


def _counts(m: Maker) -> Iterator[Case]:
    yield m.case(
        "contiguous", m.values(m.integers(2, 53, low=0, high=8).view, m.dtype), 8, 0, 7, model="qwen_moe"
    )
    yield m.case("contiguous", m.tensor(3, 37, low=-4, high=4), 10, -2, 3)
    yield m.case("contiguous", m.tensor(3, 37, low=-4, high=4), 6, -3.5, -0.75)
    ends = np.append(np.full(4999, 1.5), [-0.25, 3.5])
    yield m.case("large", m.values(ends), 7)
    yield m.case("contiguous", m.tensor(3, 37), 7)  # from the smallest to the largest
    yield m.case("contiguous", m.values(np.full((3, 5), 2.0)), 4)  # the values are one number
    yield m.case("strided", m.values(m.integers(61, low=0, high=4).view, m.dtype, "sliced"), 4, 0, 3)
    yield m.case("large", m.values(np.full(70_001, 2.0)), 4, 0, 3)  # a count beyond 16 bits
    yield m.case("contiguous", m.values([1, 2, 3, 4, 5, 2.5]), 4, 2, 2)  # one bound, which is not 0
    yield m.case("contiguous", m.tensor(67, 33), 131, -2, 3)  # more bins than a tile has columns
    yield m.case("contiguous", m.tensor(67, 33, low=-1e5, high=2e5), 3, -90_000, 150_000)
    yield m.case("contiguous", m.tensor(67, 33), 9, -2.3, 2.7)  # bounds that halves round
    yield m.case("large", m.values(np.arange(4099) * 16 + 0.5), 66_307, 0, 66_307)  # bins beyond 16 bits


def _flags(dims: Any) -> Any:
    """Mostly false tensors, and mostly true ones."""

    def samples(m: Maker) -> Iterator[Case]:
        # Fractions are 0 as integers, even numbers by their lowest bit.
        factors = np.resize([0.4, 2.0] if m.is_float else [m.dtype == "bool" or 2], 17)
        for share, layout in (
            (0.03, "contiguous"),
            (0.97, "contiguous"),
            (0.9, "transposed"),
            (0.1, "sliced"),
        ):
            flags = m.mask(3, 5, 17, share=share).view
            kind = "contiguous" if layout == "contiguous" else "strided"
            for dim in dims:
                yield m.case(kind, m.values(flags * factors, layout=layout), *dim)
        if m.is_float:  # True: NaN, and values that are 0 in a narrower dtype
            least = {"float64": 1e-300, "float32": 1e-44}.get(m.dtype, 1e-6)
            for odd in (least, float("nan")):
                for row in ([0.0, 0.0, odd], [odd, odd, odd], [odd, odd, 0.0]):
                    yield m.case("special", m.values([[row], [row]]), *dims[0])
            yield m.case("strided", m.values(np.zeros((3, 5, 7)), layout="sliced"), *dims[0])
        elif m.kind_of_dtype == "int":  # the low half is zero
            half = 1 << 4 * dt.DTYPES[m.dtype].numpy.itemsize
            for first in (0, half):
                yield m.case("special", m.values([[[first, half]], [[half, half]]]), *dims[0])
        yield m.case("zero-size", m.tensor(0, 3), *[[1] if isinstance(item, list) else 1 for item in dims[0]])
        yield m.case("0-dim", m.tensor(), *_at_zero(dims[0]))

    return samples


def _at_zero(dims: tuple[Any, ...]) -> tuple[Any, ...]:
    """The dimension arguments for a 0-dim tensor."""
    return tuple([0] if isinstance(item, list) else 0 for item in dims)


_DIM = "reduced(self, dim, keepdim)"

OPERATORS: list[Operator] = [
    op("sum", (*dt.FLOATS, "int32", "int64", "bool"), "()", "summed(self, dtype)", _narrowed(_whole()), _SUM,
       magnitude=absolutely("aten::sum")),
    op("sum.dim_IntList", (*dt.FLOATS, "int32", "int64", "bool"), _DIM, "summed(self, dtype)",
       _narrowed(_over_dims(), [1]), _SUM,
       magnitude=absolutely("aten::sum.dim_IntList")),
    op("mean", dt.FLOATS, "()", "self.dtype", _means(_whole(empty=False)), _SUM,
       magnitude=absolutely("aten::mean")),
    op("mean.dim", dt.FLOATS, _DIM, "self.dtype", _means(_over_dims(), [1]), _SUM,
       magnitude=absolutely("aten::mean.dim")),
    op("prod", (*dt.FLOATS, "int32", "int64"), "()", "summed(self, dtype)", _products, _PRODUCT, longest=1024),
    op("prod.dim_int", (*dt.FLOATS, "int32", "int64"), _DIM, "summed(self, dtype)", _products_along, _PRODUCT,
       longest=1024),
    op("amax", dt.NUMBERS, _DIM, "self.dtype", _over_dims(), CHOSEN),
    op("amin", dt.NUMBERS, _DIM, "self.dtype", _over_dims(), CHOSEN),
    op("max", dt.NUMBERS, "()", "self.dtype", _whole(empty=False), CHOSEN),
    op("min", dt.NUMBERS, "()", "self.dtype", _whole(empty=False), CHOSEN),
    op("max.dim", dt.NUMBERS, f"({_DIM}, {_DIM})", '(self.dtype, "int64")', _distinct_over_dims, CHOSEN),
    op("min.dim", dt.NUMBERS, f"({_DIM}, {_DIM})", '(self.dtype, "int64")', _distinct_over_dims, CHOSEN),
    op("argmax", dt.NUMBERS, _DIM, '"int64"', _chosen, EXACT),
    op("argmin", dt.NUMBERS, _DIM, '"int64"', _chosen, EXACT),
    op("any", dt.ALL, "()", '"uint8" if self.dtype == "uint8" else "bool"', _flags([()]), EXACT),
    op("all", dt.ALL, "()", '"uint8" if self.dtype == "uint8" else "bool"', _flags([()]), EXACT),
    op("any.dim", dt.ALL, _DIM, '"uint8" if self.dtype == "uint8" else "bool"', _flags([(1,), (-1, True)]), EXACT),
    op("any.dims", dt.ALL, f"like(self) if dim == [] else {_DIM}", '"uint8" if self.dtype == "uint8" else "bool"',
       _flags([([0, 2],), ([1],)]), EXACT),
    op("cumsum", (*dt.FLOATS, "int64"), "like(self)", "summed(self, dtype)", _arrays,
       accumulated(64, "one rounding for each element before it"), magnitude=absolutely("aten::cumsum")),
    op("linalg_vector_norm", dt.FLOATS, _DIM, "self.dtype", _norms,
       accumulated(32, "pairwise or blocked sums, then a root"), magnitude=_norm_size, denormal=False),
    op("var.correction", dt.FLOATS, _DIM, "self.dtype", _variances,
       accumulated(64, "two passes or Welford's"), magnitude=_spread),
    op("histc", ("float32", "float64"), "(bins,)", "self.dtype", _counts, EXACT),
]  # fmt: skip
