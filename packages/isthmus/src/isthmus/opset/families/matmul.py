"""Matrix products."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import whole_numbers
from isthmus.opset.operator import Operator, accumulated, op
from isthmus.opset.reference import absolutely
from isthmus.opset.sampling import Case, Maker

# Typically sqrt(K) roundings, at worst K; blocked kernels stay far below.
_GEMM = accumulated(32, "sums of up to a few hundred products in the compute dtype, blocked")

_LONG = 65_601  # products of an element
# More than 2^15 products beside more than a tile of rows and columns; products of one row, and of one column.
_FAR = ((17, 32_801, 18), (1, 1031, 131), (131, 1031, 1))

# rows, inner, columns
_DTYPES = (*dt.FLOATS, "int64")
_SIZES = (
    ("contiguous", (17, 67, 35), "llama"),
    ("contiguous", (1, 33, 5), "llama"),
    ("contiguous", (3, 1, 7), ""),
    ("zero-size", (0, 5, 7), "qwen_moe"),
    ("zero-size", (3, 0, 7), "qwen_moe"),
    ("large", (67, 261, 131), "llama"),
)


def _products(m: Maker, *lead: int, before: Any = None) -> Iterator[Case]:
    """Left and right matrices, each contiguous, transposed and sliced."""
    for kind, (rows, inner, columns), model in _SIZES:
        if kind == "large" and m.dtype not in ("float32", "bfloat16"):
            continue
        first = (before(rows, columns),) if before else ()
        yield m.case(kind, *first, m.tensor(*lead, rows, inner), m.tensor(*lead, inner, columns), model=model)
    for left, right in (
        ("transposed", "contiguous"), ("contiguous", "transposed"), ("transposed", "transposed"),
        ("sliced", "contiguous"), ("contiguous", "sliced"),
    ):  # fmt: skip
        first = (before(13, 11),) if before else ()
        pair = m.tensor(*lead, 13, 19, layout=left), m.tensor(*lead, 19, 11, layout=right)
        yield m.case("strided", *first, *pair, model="bert")
    if m.dtype == "float32":
        first = (before(2, 3),) if before else ()
        pair = whole_numbers(m, *lead, 2, _LONG), whole_numbers(m, *lead, _LONG, 3)
        yield m.case("large", *first, *pair)
        one = [1] * len(lead)
        for rows, inner, columns in _FAR:
            first = (m.tensor(rows, columns),) if before else ()
            pair = whole_numbers(m, *one, rows, inner), whole_numbers(m, *one, inner, columns)
            yield m.case("large", *first, *pair)


def _size(name: str, left: str = "self") -> Callable[..., Any]:
    """Sum of absolute products; beyond 1024 products scaled so that sqrt(n) roundings are allowed.

    BLAS fixes no order, and libraries add one product, or one vector, after another where results are few (Higham and
    Mary 2019, "A new approach to probabilistic rounding error analysis").
    """
    absolute = absolutely(f"aten::{name}")
    return lambda **arguments: absolute(**arguments) * max(1, arguments[left].shape[-1] ** 0.5 / 32)


def _mm(m: Maker) -> Iterator[Case]:
    yield from _products(m)


def _bmm(m: Maker) -> Iterator[Case]:
    yield from _products(m, 3)
    yield m.case("zero-size", m.tensor(0, 3, 5), m.tensor(0, 5, 7))
    yield m.case("broadcast", m.tensor(3, 7, 5, layout="expanded"), m.tensor(3, 5, 9))


def _negative(m: Maker) -> float:
    """A factor; of integers PyTorch accepts no fraction without products."""
    return -1.5 if m.is_float else -2


def _addmm(m: Maker) -> Iterator[Case]:
    yield from _products(m, before=lambda rows, columns: m.tensor(columns))
    for beta, alpha in ((1, 1), (0.5, 2.0), (0, 1), (2, 0.5)):
        yield m.case("contiguous", m.tensor(7, 9), m.tensor(7, 13), m.tensor(13, 9), beta=beta, alpha=alpha)
    yield m.case("broadcast", m.tensor(7, 1), m.tensor(7, 13), m.tensor(13, 9))
    for shape in ((7, 1), (7,), (1, 7)):  # a column, or a row, of a square result
        yield m.case("broadcast", m.tensor(*shape), m.tensor(7, 13), m.tensor(13, 7))
    for beta, alpha in ((-0.75, 1.25), (1, 0), (0.375, -1), (0, 0), (1, 0.75)):
        yield m.case("contiguous", m.tensor(1, 9), m.tensor(7, 13), m.tensor(13, 9), beta=beta, alpha=alpha)
    yield m.case("zero-size", m.tensor(9), m.tensor(7, 0), m.tensor(0, 9), beta=_negative(m), alpha=2)
    # beta = 0 ignores the first tensor, even NaN.
    if m.is_float:
        nan = m.values(np.full((7, 9), np.nan))
        yield m.case("special", nan, m.tensor(7, 13), m.tensor(13, 9), beta=0, alpha=2.0)
    yield m.case("0-dim", m.tensor(), m.tensor(7, 13), m.tensor(13, 9))


def _baddbmm(m: Maker) -> Iterator[Case]:
    yield from _products(m, 3, before=lambda rows, columns: m.tensor(3, rows, columns))
    yield m.case("broadcast", m.tensor(1, 1, 9), m.tensor(2, 7, 13), m.tensor(2, 13, 9), beta=0.5, alpha=2.0)
    for square in ((7, 7, 1), (7, 1, 7), (1, 7, 7), (7, 1, 1), (7, 1), (7,)):  # results have equal sizes
        yield m.case("broadcast", m.tensor(*square), m.tensor(7, 7, 3), m.tensor(7, 3, 7))
    for shape, beta, alpha in (((2, 1, 1), -0.75, 1.25), ((7, 1), 1, 0), ((9,), 0.375, -1), ((), 2, 0.75)):
        yield m.case(
            "special", m.tensor(*shape), m.tensor(2, 7, 13), m.tensor(2, 13, 9), beta=beta, alpha=alpha
        )
    yield m.case(
        "zero-size", m.tensor(2, 7, 9), m.tensor(2, 7, 0), m.tensor(2, 0, 9), beta=_negative(m), alpha=2
    )
    if not m.is_float:
        return
    nan = m.values(np.full((2, 7, 9), np.nan))
    yield m.case("special", nan, m.tensor(2, 7, 13), m.tensor(2, 13, 9), beta=0, alpha=2.0)


def _mv(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(17, 35), m.tensor(35))
    yield m.case("strided", m.tensor(17, 35, layout="transposed"), m.tensor(35, layout="sliced"))
    yield m.case("zero-size", m.tensor(0, 5), m.tensor(5))
    if m.dtype == "float32":
        yield m.case("large", whole_numbers(m, 3, _LONG), whole_numbers(m, _LONG))


def _dot(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(67), m.tensor(67))
    yield m.case("strided", m.tensor(29, layout="sliced"), m.tensor(29))
    yield m.case("zero-size", m.tensor(0), m.tensor(0))
    if m.dtype == "float32":
        yield m.case("large", whole_numbers(m, _LONG), whole_numbers(m, _LONG))


OPERATORS: list[Operator] = [
    op("mm", _DTYPES, "(self.shape[0], mat2.shape[1])", "self.dtype", _mm, _GEMM, magnitude=_size("mm"),
       resizable=True),
    op("bmm", _DTYPES, "(self.shape[0], self.shape[1], mat2.shape[2])", "self.dtype", _bmm, _GEMM,
       magnitude=_size("bmm"), resizable=True),
    op("addmm", _DTYPES, "(mat1.shape[0], mat2.shape[1])", "self.dtype", _addmm, _GEMM,
       magnitude=_size("addmm", "mat1"), resizable=True),
    op("baddbmm", _DTYPES, "(batch1.shape[0], batch1.shape[1], batch2.shape[2])", "self.dtype", _baddbmm, _GEMM,
       magnitude=_size("baddbmm", "batch1"), resizable=True),
    op("mv", _DTYPES, "(self.shape[0],)", "self.dtype", _mv, _GEMM, magnitude=_size("mv"),
       resizable=True),
    op("dot", _DTYPES, "()", "self.dtype", _dot, _GEMM, magnitude=_size("dot"), resizable=True),
]  # fmt: skip
