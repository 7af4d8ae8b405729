"""Sample makers that several families share."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.sampling import PERIOD, Array, Case, Maker

Range = tuple[float, float]
ANY: Range = (-2.7, 3.1)

# (kind, layout, shape, model); sizes are not multiples of vector widths.
SHAPES = (
    ("contiguous", "contiguous", (2, 17, 35), "llama"),
    ("strided", "transposed", (3, 19, 23), "qwen_moe"),
    ("strided", "sliced", (5, 29), "bert"),
    ("strided", "channels_last", (2, 7, 5, 3), "resnet"),
    ("strided", "expanded", (4, 11), ""),
    ("zero-size", "contiguous", (3, 0, 5), ""),
    ("0-dim", "contiguous", (), ""),
    ("large", "contiguous", (4111,), "llama"),
)
LARGE_DTYPES = ("bfloat16", "float32", "int64")


def special_values(dtype: str, extremes: bool = True) -> np.ndarray[Any, Any]:
    """NaN, infinities, signed zeros, denormals and, with ``extremes``, the largest numbers of a float dtype.

    NaN of both signs and of all payload bits, too: as integers that are rounded to 16 bits they overflow.
    """
    import ml_dtypes

    info = ml_dtypes.finfo(dt.DTYPES[dtype].numpy)
    tiny, smallest = float(info.tiny), float(info.smallest_subnormal)
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -1.5, tiny, -tiny, smallest, -3 * smallest]
    values += [*np.array([2**63 - 1, -1]).view(np.float64)]
    return np.array([*values, float(info.max), -float(info.max)] if extremes else values)


def signaling(values: np.ndarray[Any, Any], where: np.ndarray[Any, Any]) -> None:
    """Set elements of a float array to NaN whose quiet bit is not set."""
    bits = np.dtype(f"uint{8 * values.itemsize}")
    values.view(bits)[where] = np.array(np.inf, values.dtype).view(bits) + 1


def whole_numbers(m: Maker, *shape: int) -> Array:
    """Large tensor of integers from -3 to 3, so that sums of many products are exact in any order."""
    return m.values(np.resize(m.integers(PERIOD, low=-3, high=4).view, shape))


def shapes_for(maker: Maker) -> Iterator[tuple[str, str, tuple[int, ...], str]]:
    """The rows of :data:`SHAPES` for the dtype under test."""
    for row in SHAPES:
        if row[0] != "large" or maker.dtype in LARGE_DTYPES:
            yield row


def elementwise(*ranges: Range, special: bool = True, extremes: bool = True, **scalars: Any) -> Any:
    """Samples of an elementwise operator whose first arguments are tensors, one per range of values.

    Args:
        ranges: range of values of each tensor.
        special: include NaN, infinities, zeros and denormals (all pairs for two tensors).
        extremes: include the largest numbers.
        scalars: the other arguments.
    """

    def samples(m: Maker) -> Iterator[Case]:
        for kind, layout, shape, model in shapes_for(m):
            tensors = [m.tensor(*shape, low=low, high=high, layout=layout) for low, high in ranges]
            yield m.case(kind, *tensors, model=model, **scalars)
        if len(ranges) > 1:
            yield from _broadcasts(m, ranges, scalars)
        if special and m.is_float:
            yield m.case("special", *_specials(m, len(ranges), extremes), **scalars)

    return samples


def _broadcasts(m: Maker, ranges: tuple[Range, ...], scalars: dict[str, Any]) -> Iterator[Case]:
    sets: tuple[tuple[tuple[int, ...], ...], ...] = (((3, 1, 13), (7, 1), (7, 13)), ((), (2, 9), (1,)))
    for sizes in (*sets, ((2, 9), (), (2, 9))):
        tensors = [
            m.tensor(*sizes[i % 3], low=low, high=high) for i, (low, high) in enumerate(ranges)
        ]  # fmt: skip
        yield m.case("broadcast", *tensors, **scalars)
    mixed = ("contiguous", "transposed", "sliced")
    tensors = [
        m.tensor(6, 10, low=low, high=high, layout=mixed[i % 3]) for i, (low, high) in enumerate(ranges)
    ]
    yield m.case("strided", *tensors, **scalars)


def _specials(m: Maker, count: int, extremes: bool) -> list[Array]:
    values = special_values(m.dtype, extremes)
    grids = np.meshgrid(*[values] * min(count, 2), indexing="ij")
    tensors = [m.values(grid) for grid in grids]  # rows of one value, such as -inf, in two tensors
    while len(tensors) < count:
        tensors.append(m.tensor(*grids[0].shape))
    return tensors


def size_of(reference: Callable[..., Any]) -> Any:
    """Magnitude by a reference that has the option ``magnitude``."""
    return lambda **arguments: reference(**arguments, magnitude=True)


def points(*columns: Sequence[float], **scalars: Any) -> Any:
    """A case of a pointwise operator at given points: the values of each of its tensors."""

    def samples(m: Maker) -> Iterator[Case]:
        yield m.case("special", *[m.values(column) for column in columns], **scalars)

    return samples


def denormals(m: Maker, *shape: int) -> Array:
    """Tensor of denormal numbers, of which additions and products with powers of two are exact."""
    import ml_dtypes

    tiny = float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).tiny)
    return m.values(np.resize([0.75, -0.5, 0.25, -0.125], shape) * tiny)


def several(*makers: Callable[[Maker], Iterator[Case]]) -> Any:
    """Concatenate the samples of several sample makers."""

    def samples(m: Maker) -> Iterator[Case]:
        for each in makers:
            yield from each(m)

    return samples


def variants(samples: Callable[..., Any], *settings: dict[str, Any]) -> Any:
    """Repeat the samples with several settings of the other arguments."""
    return several(*[samples(**setting) for setting in settings])
