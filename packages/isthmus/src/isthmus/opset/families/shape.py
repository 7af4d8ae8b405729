"""Operators that move data: copies, conversions, joins, pads, masks, triangles."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import special_values
from isthmus.opset.operator import ROUNDED, Operator, op
from isthmus.opset.sampling import Case, Maker

_SAME = ("like(self)", "self.dtype")
_LARGE_COPIES = (
    ("contiguous", "channels_last"), ("channels_last", "contiguous"), ("contiguous", "heads"),
    ("heads", "contiguous"), ("sliced", "contiguous"), ("channels_last", "transposed"),
)  # fmt: skip


def _copies(m: Maker) -> Iterator[Case]:
    layouts = ("contiguous", "transposed", "sliced")
    for to in layouts:
        for source in (*layouts, "expanded"):
            kind = "contiguous" if to == source == "contiguous" else "strided"
            yield m.case(kind, m.tensor(5, 7, 9, layout=to), m.tensor(5, 7, 9, layout=source), model="llama")
    yield m.case("broadcast", m.tensor(5, 7, 9), m.tensor(7, 1), model="llama")
    for shape in ((5, 1, 9), (5, 7, 1), (1, 7, 9), (1, 1, 9), (1, 1, 1), (7, 9)):
        yield m.case("broadcast", m.tensor(5, 7, 9), m.tensor(*shape))
    yield m.case("0-dim", m.tensor(3, 5), m.tensor())
    yield m.case("zero-size", m.tensor(0, 5), m.tensor(0, 5))
    if m.dtype in ("float32", "bfloat16"):
        yield m.case("large", m.tensor(67, 61), m.tensor(67, 61, layout="transposed"), model="llama")
        for to, source in _LARGE_COPIES:
            yield m.case("large", m.tensor(3, 5, 37, 41, layout=to), m.tensor(3, 5, 37, 41, layout=source))
    yield from _conversions(m)


def _conversions(m: Maker) -> Iterator[Case]:
    """Conversions from every other dtype; without floats that overflow integers."""
    for source in dt.ALL:
        if source == m.dtype:
            continue
        positive = m.kind_of_dtype == "uint"
        tensor = m.tensor(7, 9, dtype=source, low=0 if positive else -9.6, high=25, layout="transposed")
        yield m.case("strided", m.tensor(7, 9), tensor)
        for few in (4, 8):  # one vector
            yield m.case(
                "special", m.tensor(few), m.tensor(few, dtype=source, low=0 if positive else -9.6, high=25)
            )
        far = _far(source, m.dtype)
        if far:
            yield m.case("special", m.tensor(len(far)), m.values(far, source))
    if m.is_float:
        wide = m.values(special_values("float32"), "float32")
        yield m.case("special", m.tensor(*wide.shape), wide)


def _far(source: str, to: str) -> list[Any]:
    """Integers that wrap around in the result; numbers beyond narrower dtypes; what is true though not a number."""
    kind, result = dt.DTYPES[source].numpy, dt.DTYPES[to].numpy
    if source in dt.FLOATS:
        if to == "bool":
            return [float("nan"), float("inf"), -float("inf"), 0.0, -0.0]
        if to == "uint8":  # converted by way of int64, which other integers are not
            return [-1.0, -3.75, 256.0, 300.5, -200.0, 5.0, -0.5, -256.0] * 5
        exact = {"int32": 1 << 24, "int64": 1 << 52}.get(to)
        return [exact + 1, exact + 3, 1 - exact] if source == "float64" and exact else []
    if source not in dt.NUMBERS or to in dt.HALVES:
        return []
    half = 1 << 4 * kind.itemsize
    if to in ("float32", "float64"):
        return (
            [(1 << 24) + 2, (1 << 30) + 64, *([1 << 52 | 1] if to == "float64" else [])]
            if source == "int64"
            else []
        )
    limits = np.iinfo(kind)
    return [half, 256 % limits.max, limits.min, limits.max, half - 1] if result.kind in "iub" else []


def _cats(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", [m.tensor(2, 3, 9), m.tensor(2, 5, 9), m.tensor(2, 1, 9)], 1, model="llama")
    yield m.case("contiguous", [m.tensor(2, 7, 5), m.tensor(2, 7, 5)], -1, model="llama")
    yield m.case("strided", [m.tensor(3, 5, layout="transposed"), m.tensor(4, 5, layout="sliced")], 0)
    yield m.case("zero-size", [m.tensor(3, 5), m.tensor(0), m.tensor(3, 0)], 1)
    yield m.case("contiguous", [m.tensor(7)], 0)
    yield m.case(
        "contiguous", [m.tensor(2, n, 3) for n in range(1, 131)], -2
    )  # more than one kernel's arguments
    yield m.case("contiguous", [m.tensor(3) for _ in range(150)], 0)
    if m.dtype == "float32":
        yield m.case("large", [m.tensor(2, 32_801), m.tensor(2, 5)], -1)


def _stacks(m: Maker) -> Iterator[Case]:
    yield m.case("0-dim", [m.tensor(), m.tensor(), m.tensor()], 0, model="llama")
    for dim in (0, 1, -1, 2, -2, -3):
        yield m.case("contiguous", [m.tensor(3, 5), m.tensor(3, 5)], dim)
    for dim in (-1, -2):  # the sizes are equal
        yield m.case("contiguous", [m.tensor(3, 3) for _ in range(3)], dim)
    yield m.case("contiguous", [m.tensor(2, 3) for _ in range(131)], 1)
    yield m.case("strided", [m.tensor(3, 5, layout="transposed"), m.tensor(3, 5, layout="sliced")], 1)
    yield m.case("zero-size", [m.tensor(0, 5), m.tensor(0, 5)], 1)


def _choices(m: Maker) -> Iterator[Case]:
    for kind, layout, shape in (
        ("contiguous", "contiguous", (2, 17, 9)), ("strided", "transposed", (5, 7, 9)),
        ("strided", "sliced", (7, 9)), ("zero-size", "contiguous", (0, 5)), ("0-dim", "contiguous", ()),
    ):  # fmt: skip
        yield m.case(kind, m.mask(*shape, layout=layout), m.tensor(*shape, layout=layout), m.tensor(*shape))
    yield m.case("broadcast", m.mask(5, 1, 7), m.tensor(3, 7), m.tensor(), model="llama")
    if m.is_float:
        values = special_values(m.dtype)
        yield m.case("special", m.mask(len(values)), m.values(values), m.tensor(len(values)))


def _fills(m: Maker) -> Iterator[Case]:
    """Masked fills by numbers, including the minimum of the dtype."""
    value: Any = float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).min) if m.is_float else 3
    yield m.case("contiguous", m.tensor(2, 3, 7, 9), m.mask(2, 3, 7, 9), value, model="llama")
    yield m.case("broadcast", m.tensor(2, 3, 7, 9), m.mask(2, 1, 1, 9), value, model="bert")
    yield m.case("strided", m.tensor(7, 9, layout="transposed"), m.mask(7, 9, layout="sliced"), 1)
    yield m.case("zero-size", m.tensor(0, 9), m.mask(0, 9), 1)
    if m.is_float:
        yield m.case("special", m.tensor(7, 9), m.mask(7, 9), float("-inf"))


def _masked_scatters(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(7, 9), m.mask(7, 9), m.tensor(63))
    yield m.case("strided", m.tensor(7, 9, layout="transposed"), m.mask(7, 9), m.tensor(63, layout="sliced"))
    yield m.case("zero-size", m.tensor(0, 9), m.mask(0, 9), m.tensor(0))
    yield m.case("broadcast", m.tensor(3, 1, 9), m.mask(5, 1), m.tensor(135))
    yield m.case("contiguous", m.tensor(5, 1), m.mask(5, 1), m.tensor(11))
    deep = (2, 1, 3, 2, 1, 2, 3)
    yield m.case("contiguous", m.tensor(*deep), m.mask(*deep), m.tensor(2, 3, 4, 3))
    yield m.case("contiguous", m.tensor(1, 3), m.mask(1, 3, share=1), m.tensor(1, 3))
    every = m.mask(3, 5, share=1)  # to the last element of the source
    yield m.case("contiguous", m.tensor(3, 5), every, m.tensor(3, 5))
    if m.dtype == "float32":
        for shape in ((65_601, 2), (2, 65_601)):
            yield m.case("large", m.tensor(*shape), m.mask(*shape), m.tensor(131_202))


def _pads(m: Maker) -> Iterator[Case]:
    for pad, value in (([1, 2], 0), ([0, 3, 2, 1], 1.5), ([-1, 2], 0), ([0, 1], -100)):
        fill = value if m.is_float else max(int(value), 0) if m.kind_of_dtype == "uint" else int(value)
        yield m.case("contiguous", m.tensor(3, 5, 7), pad, fill, model="llama")
    yield m.case("contiguous", m.tensor(3, 5, 7), [3, 0, -2, 1, 4, -1], 2)
    yield m.case("contiguous", m.tensor(2, 3, 5), [-1, -3, 0, 2, 1, 5], 1)
    yield m.case("contiguous", m.tensor(2, 1, 3, 2, 2, 3, 2), [1, 0, 2, 1, 0, 1, 1, 0, 0, 2], 1)
    yield m.case("contiguous", m.tensor(2), [0, 1], 1)
    for shape in ((5, 1), (1, 5), (3, 1, 1), (1, 3, 1)):
        yield m.case("contiguous", m.tensor(*shape), [1, 3, 2, 1], 1)
    if m.dtype == "float32":
        yield m.case("large", m.tensor(257, 255), [3, 1, 0, 2], -0.375)
    yield m.case("strided", m.tensor(5, 7, layout="transposed"), [2, 1], 0)
    yield m.case("zero-size", m.tensor(3, 0), [2, 1], 1)


def _repeats(m: Maker) -> Iterator[Case]:
    for times in ([2, 3], [2, 1, 3], [1, 1], [4, 3, 2], [2, 3, 1, 4], [4, 1, 1], [3, 2, 1, 1], [1, 3, 1]):
        yield m.case("contiguous", m.tensor(3, 5), times)
        yield m.case("contiguous", m.tensor(4, 8), times)
    yield m.case("strided", m.tensor(3, 5, layout="transposed"), [2, 2])
    yield m.case("zero-size", m.tensor(0, 5), [3, 2])
    yield m.case("contiguous", m.tensor(3, 5), [0, 2])
    yield m.case("contiguous", m.tensor(2, 1, 3, 2, 2), [2, 1, 3, 1, 2, 2, 1])
    yield m.case("contiguous", m.tensor(2, 1, 2, 3, 2, 1, 3), [1, 2, 1, 1, 1, 2, 1])
    yield m.case("0-dim", m.tensor(), [3])


def _flips(m: Maker) -> Iterator[Case]:
    for dims in ([0], [1, 2], [-1], [], [-3, 2], [2, 0, 1], [-2]):
        yield m.case("contiguous", m.tensor(3, 5, 7), dims)
    yield m.case("strided", m.tensor(3, 5, layout="transposed"), [1])
    yield m.case("zero-size", m.tensor(0, 5), [1])


def _rolls(m: Maker) -> Iterator[Case]:
    for shifts, dims in (([1], [1]), ([-2, 3], [0, 2]), ([4], []), ([3, -1, 2], [-1, 0, 1]), ([0, 12], [0, 1]),
                         ([-106], []), ([2, -3], [1, 1]), ([-9], [-2])):  # fmt: skip
        yield m.case("contiguous", m.tensor(3, 5, 7), shifts, dims)
    for shifts, dims in (([2], [0]), ([2], [])):
        yield m.case("strided", m.tensor(3, 5, layout="transposed"), shifts, dims)


def _triangles(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(5, 6), 1)
    for diagonal in (-20, 20, -6, 8):
        yield m.case("contiguous", m.tensor(7, 9), diagonal)
        yield m.case("contiguous", m.tensor(2, 3, 9, 5), diagonal // 2)
    if m.dtype == "float32":
        yield m.case("large", m.tensor(259, 257), 3)
        yield m.case("large", m.tensor(65_601, 2, 2), 0)
        yield m.case("contiguous", m.tensor(100, 97), 50)  # beyond a tile from the main diagonal
        yield m.case("contiguous", m.tensor(97, 100), -50)
        yield m.case("large", m.tensor(3, 8209), 5000)
        yield m.case("large", m.tensor(3, 8209), -1)
    for diagonal in (1 << 40, -(1 << 40)):
        yield m.case("contiguous", m.tensor(3, 5), diagonal)
    for diagonal in (0, 1, -2):
        yield m.case("contiguous", m.tensor(7, 9), diagonal, model="llama")
        yield m.case("strided", m.tensor(2, 9, 5, layout="transposed"), diagonal)
    yield m.case("zero-size", m.tensor(0, 5))


def _parts(name: str) -> Any:
    """A part of a tensor replaced: by a source for slice and select, or a gradient widened with zeros."""

    def samples(m: Maker) -> Iterator[Case]:
        if name == "slice":
            yield m.case("contiguous", m.tensor(7, 9), m.tensor(3, 9), 0, 1, 6, 2)
            yield m.case("contiguous", m.tensor(2, 1), m.tensor(1, 1), 0, 1, 2, 1)
            yield m.case("contiguous", m.tensor(2, 1, 3), m.tensor(1, 1, 3), 0, 1, 2, 1)
            if m.dtype == "float32":
                yield m.case("large", m.tensor(65_605, 2), m.tensor(65_601, 2), 0, 3, 65_604, 1)
            yield m.case("strided", m.tensor(7, 9, layout="transposed"), m.tensor(7, 4), 1, 2, 6)
            for dim, start, end, step, count in ((-2, -5, -1, 2, 2), (1, None, 6, 3, 2), (-2, 2, None, 1, 5),
                                                 (1, -100, 100, 4, 2), (1, 5, 2, 1, 0), (1, -9, 5, 1, 5),
                                                 (1, 3, 2**63 - 1, 1, 4)):  # fmt: skip
                yield m.case("contiguous", m.tensor(3, 7, 5), m.tensor(3, count, 5), dim, start, end, step)
        elif name == "select":
            yield m.case("contiguous", m.tensor(7, 9), m.tensor(9), 0, 3)
            yield m.case("strided", m.tensor(7, 9, layout="transposed"), m.tensor(7, layout="sliced"), 1, -1)
            yield m.case("contiguous", m.tensor(3, 7, 5), m.tensor(3, 5), -2, -6)
            yield m.case("contiguous", m.tensor(2, 3, 1, 2, 5, 2, 3), m.tensor(2, 3, 1, 2, 2, 3), 4, 3)
            yield m.case("contiguous", m.tensor(3, 1), m.tensor(1), 0, 1)
            yield m.case("contiguous", m.tensor(2, 1, 3), m.tensor(1, 3), 0, 1)
            yield m.case(
                "strided", m.tensor(2, 3, 2, 3, 2, 2), m.tensor(2, 2, 3, 2, 2, layout="transposed"), 1, -1
            )
        elif name == "slice_backward":
            yield m.case("contiguous", m.tensor(2, 3, 9), [2, 7, 9], 1, 4, 7, 1, model="llama")
            yield m.case("contiguous", m.tensor(2, 4), [2, 9], 1, 1, 8, 2)
            yield m.case("contiguous", m.tensor(3, 2, 5), [3, 7, 5], -2, -5, -1, 2)
            yield m.case("contiguous", m.tensor(3, 2, 5), [3, 7, 5], 1, -100, 100, 4)
            yield m.case("contiguous", m.tensor(3, 5, 5), [3, 7, 5], 1, -9, 5, 1)
            yield m.case("contiguous", m.tensor(3, 4, 5), [3, 7, 5], 1, 3, 2**63 - 1, 1)
            yield m.case("strided", m.tensor(3, 4, layout="transposed"), [3, 9], 1, 0, 4, 1)
            if m.dtype == "float32":
                yield m.case("large", m.tensor(8209, 3, 2), [8209, 5, 2], 1, 1, 4, 1)
            yield m.case("contiguous", m.tensor(2, 1, 2, 3, 2, 3, 2), [2, 1, 2, 5, 2, 3, 2], 3, 1, 4, 1)
            yield m.case("contiguous", m.tensor(1, 2), [1, 3], 1, 0, 2, 1)
            yield m.case(
                "strided", m.tensor(2, 3, 2, 1, 2, 3, layout="transposed"), [2, 3, 2, 1, 5, 3], -2, 1, 5, 2
            )
        else:
            yield m.case("contiguous", m.tensor(2, 9), [2, 7, 9], 1, 4, model="bert")
            yield m.case("strided", m.tensor(3, 4, layout="transposed"), [3, 4, 5], 2, 1)
            yield m.case("contiguous", m.tensor(3, 5), [3, 7, 5], -2, -6)
            yield m.case("contiguous", m.tensor(2, 3, 2, 5, 2, 2, 3), [2, 3, 2, 4, 5, 2, 2, 3], 3, 1)
            yield m.case("contiguous", m.tensor(3), [1, 3], 0, 0)
            yield m.case("strided", m.tensor(2, 3, 2, 5, 2, layout="transposed"), [2, 4, 3, 2, 5, 2], 1, 2)

    return samples


def _fill(m: Maker) -> Iterator[Case]:
    values: tuple[Any, ...] = (0, 1.25, -3e-5) if m.is_float else (True,) if m.dtype == "bool" else (7,)
    for value in values:
        yield m.case("contiguous", m.tensor(3, 13), value, model="llama")
    yield m.case("strided", m.tensor(5, 7, layout="transposed"), values[0])
    yield m.case("strided", m.tensor(5, 7, layout="sliced"), values[-1])
    yield m.case("zero-size", m.tensor(0, 3), values[0])
    yield m.case("0-dim", m.tensor(), values[-1])


def _zeros(m: Maker) -> Iterator[Case]:
    for kind, layout, shape in (("contiguous", "contiguous", (3, 13)), ("strided", "transposed", (5, 7)),
                                ("strided", "sliced", (5, 7)), ("zero-size", "contiguous", (0, 3)),
                                ("0-dim", "contiguous", ())):  # fmt: skip
        yield m.case(kind, m.tensor(*shape, layout=layout), model="bert")


def _fill_tensors(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(3, 13), m.tensor())
    yield m.case("strided", m.tensor(5, 7, layout="sliced"), m.tensor())
    if m.is_float:
        least = float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).smallest_subnormal)
        for value in (
            -0.0,
            5 * least,
            float("-inf"),
            float("nan"),
            2.0 ** (3 if m.dtype == "float16" else 99),
        ):
            yield m.case("special", m.tensor(3, 5), m.values(value))


_WIDTH = "sum(t.shape[dim] for t in tensors if t.shape != (0,))"

OPERATORS: list[Operator] = [
    op("copy_", dt.ALL, "None", "None", _copies, ROUNDED),
    op("fill_.Scalar", dt.ALL, "None", "None", _fill, ROUNDED),
    op("fill_.Tensor", dt.ALL, "None", "None", _fill_tensors, resizable=True),
    op("zero_", dt.ALL, "None", "None", _zeros),
    op("cat", dt.ALL, f"at(tensors[0], dim, {_WIDTH})", "tensors[0].dtype", _cats, resizable=True),
    op("stack", dt.ALL,
       "(lambda s, d: s[:d] + (len(tensors),) + s[d:])(tensors[0].shape, dim % (len(tensors[0].shape) + 1))",
       "tensors[0].dtype", _stacks, resizable=True),
    op("where.self", dt.ALL, "broadcast(condition, self, other)", "promote(self, other)", _choices),
    op("masked_fill.Scalar", dt.NUMBERS, "broadcast(self, mask)", "self.dtype", _fills, ROUNDED),
    op("masked_scatter", dt.ALL, "broadcast(self, mask)", "self.dtype", _masked_scatters, resizable=True),
    op("constant_pad_nd", dt.ALL, "padded(self, pad)", "self.dtype", _pads, resizable=True),
    op("repeat", dt.ALL,
       "tuple(r * n for r, n in zip(repeats, (1,) * (len(repeats) - len(self.shape)) + self.shape))",
       "self.dtype", _repeats, resizable=True),
    op("flip", dt.ALL, *_SAME, _flips),
    op("roll", dt.ALL, *_SAME, _rolls),
    op("tril", dt.ALL, *_SAME, _triangles),
    op("triu", dt.ALL, *_SAME, _triangles),
    op("slice_scatter", dt.ALL, *_SAME, _parts("slice"), resizable=True),
    op("select_scatter", dt.ALL, *_SAME, _parts("select"), resizable=True),
    op("slice_backward", dt.FLOATS, "tuple(input_sizes)", "grad_output.dtype", _parts("slice_backward"),
       resizable=True),
    op("select_backward", dt.FLOATS, "tuple(input_sizes)", "grad_output.dtype", _parts("select_backward"),
       resizable=True),
]  # fmt: skip
