"""Arithmetic and functions, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import ANY, denormals, elementwise, points, several
from isthmus.opset.families._pointwise_calls import (
    clamps,
    far_powers,
    large_bound,
    low_bound,
    power_base,
    powers,
    scalar_bounds,
    tensor_clamps,
    whole_pairs,
    whole_powers,
)
from isthmus.opset.operator import (
    CHOSEN,
    EXACT,
    LIBRARY,
    MODERATE,
    ONLY_NAN,
    POWER,
    POWERS,
    ROOT,
    ROUNDED,
    SCALED,
    Operator,
    Tolerance,
    op,
    transcendental,
)
from isthmus.opset.sampling import Case, Maker

if TYPE_CHECKING:
    import torch

LIKE = ("like(self)", "self.dtype")
PAIR = ("broadcast(self, other)", "promote(self, other)")
BITS = (*dt.INTEGERS, "bool")

_ERF = {
    **transcendental(4),
    **dict.fromkeys(
        dt.HALVES, Tolerance(0.51, 2, "1 - a polynomial, whose error is relative to 1, is common")
    ),
}

# name, dtypes, range of the values, tolerance
_UNARY: tuple[tuple[str, tuple[str, ...], tuple[float, float], Any], ...] = (
    ("abs", dt.NUMBERS, ANY, EXACT),
    ("neg", dt.NUMBERS, ANY, EXACT),
    ("sign", dt.NUMBERS, ANY, EXACT),
    ("ceil", dt.FLOATS, (-9, 9), EXACT),
    ("floor", dt.FLOATS, (-9, 9), EXACT),
    ("trunc", dt.FLOATS, (-9, 9), EXACT),
    ("round", dt.FLOATS, (-9, 9), EXACT),
    ("frac", dt.FLOATS, (-9, 9), EXACT),
    ("sqrt", dt.FLOATS, (0, 50), ROOT),
    ("reciprocal", dt.FLOATS, ANY, ROUNDED),
    ("rsqrt", dt.FLOATS, (0.01, 50), transcendental(2, "1 / sqrt(x), two roundings,")),
    ("exp", dt.FLOATS, (-9, 9), transcendental(3, LIBRARY)),
    ("exp2", dt.FLOATS, (-9, 9), transcendental(3, LIBRARY)),
    ("expm1", dt.FLOATS, (-5, 5), transcendental(3, LIBRARY)),
    ("log", dt.FLOATS, (0.01, 50), transcendental(3, LIBRARY)),
    ("log2", dt.FLOATS, (0.01, 50), transcendental(3, LIBRARY)),
    ("log10", dt.FLOATS, (0.01, 50), transcendental(3, LIBRARY)),
    ("log1p", dt.FLOATS, (-0.9, 50), transcendental(2, LIBRARY)),
    ("sin", dt.FLOATS, (-30, 30), transcendental(4, LIBRARY)),
    ("cos", dt.FLOATS, (-30, 30), transcendental(4, LIBRARY)),
    ("tan", dt.FLOATS, (-3, 3), transcendental(5, LIBRARY)),
    ("asin", dt.FLOATS, (-1, 1), transcendental(4, LIBRARY)),
    ("acos", dt.FLOATS, (-1, 1), transcendental(4, LIBRARY)),
    ("atan", dt.FLOATS, (-9, 9), transcendental(5, LIBRARY)),
    ("sinh", dt.FLOATS, (-5, 5), transcendental(4, LIBRARY)),
    ("cosh", dt.FLOATS, (-5, 5), transcendental(4, LIBRARY)),
    ("asinh", dt.FLOATS, (-9, 9), transcendental(4, LIBRARY)),
    ("acosh", dt.FLOATS, (1, 50), transcendental(4, LIBRARY)),
    ("atanh", dt.FLOATS, (-0.95, 0.95), transcendental(5, LIBRARY)),
    ("erf", dt.FLOATS, (-3, 3), _ERF),
    ("bitwise_not", BITS, ANY, EXACT),
)  # fmt: skip


_WHOLE = (1.0, -1.0, 2.0, 3.0)  # quotients by 0.1 round to whole numbers


def _scalar(*values: Any, floats_only: bool = False, special: bool = True, **others: Any) -> Any:
    """Samples of ``f(self, other: Scalar)``; fractional numbers only for float tensors."""

    def samples(m: Maker) -> Iterator[Case]:
        for i, value in enumerate(values):
            if not m.is_float and isinstance(value, float):
                continue
            if m.kind_of_dtype == "uint" and value < 0:
                continue
            each = elementwise(ANY, special=special, other=value, **others) if i == 0 else _two(value, others)
            yield from each(m)

    return samples


def _exact_alpha(m: Maker) -> Iterator[Case]:
    """A factor that bfloat16 rounds, whose product float32 does not."""
    if m.dtype in ("float32", "float64"):
        yield m.case("contiguous", m.values([1.0, -3.0, 5.5, 0.25]), other=3, alpha=2.0078125)


def _wide_number(m: Maker) -> Iterator[Case]:
    """A number of more than 32 bits."""
    if m.dtype == "int64":
        yield m.case("special", m.tensor(3, 29), other=(5 << 33) + 3)


def _shifts(m: Maker) -> Iterator[Case]:
    """Shifts by less than the bits of the dtype, by all of them, by more, and below 0."""
    bits = 8 * dt.DTYPES[m.dtype].numpy.itemsize
    yield from elementwise(ANY, (0, bits), special=False)(m)
    amounts = [0, 1, bits - 2, bits - 1, bits, bits + 1, 100] + (
        [-1, -bits] if m.kind_of_dtype == "int" else []
    )
    info = np.iinfo(dt.DTYPES[m.dtype].numpy)
    numbers = [0, 1, 5, info.max, info.max // 3] + ([-1, -2, info.min] if info.min else [])
    grid = np.meshgrid(
        np.array(numbers, dtype=info.dtype), np.array(amounts, dtype=info.dtype), indexing="ij"
    )
    yield m.case("special", *[m.values(each) for each in grid])


def _far_number(m: Maker) -> Iterator[Case]:
    """A number whose reciprocal is denormal, or too large."""
    if m.is_float:
        info = ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy)
        for number, others in (
            (float(info.max) * 0.9, [1.0, -0.5, 0.25]),
            (float(info.tiny) / 8, [0.5, 1e-3, 0.0]),
        ):
            yield m.case("special", m.values([each * number for each in others]), other=number)


def _infinite_divisor(m: Maker) -> Iterator[Case]:
    """Numbers divided by infinities."""
    for divisor in (float("inf"), -float("inf")) if m.is_float else ():
        yield m.case("special", m.values([-5.5, 5.5, 0.0, -0.0]), other=divisor)


def _rounded_divisor(m: Maker) -> Iterator[Case]:
    """A number that the dtype rounds, whose multiples its tensors hold."""
    if m.is_float:
        yield m.case("contiguous", m.values([0.1, -0.2, 0.75, 5.0, -30.0]), other=0.1)


def _long_quotients(m: Maker) -> Iterator[Case]:
    """Quotients that halves have to round."""
    if m.is_float:
        yield m.case("contiguous", m.values([3, 2040, 777, 1000, 2040]), other=0.7, rounding_mode="floor")


def _denormal_terms(m: Maker) -> Iterator[Case]:
    """Denormal numbers beside a 0, which leaves them."""
    if m.is_float:
        yield m.case("special", denormals(m, 9), other=0)


def _two(value: Any, others: dict[str, Any]) -> Any:
    def samples(m: Maker) -> Iterator[Case]:
        yield m.case("contiguous", m.tensor(3, 31), other=value, **others)
        yield m.case("strided", m.tensor(7, 13, layout="transposed"), other=value, **others)

    return samples


def _scaled_sum(self: torch.Tensor, other: Any, alpha: Any = 1) -> Any:
    scaled = self * 0 + other * (0 if alpha == 1 else alpha)
    return scaled.abs().nan_to_num(0, 0, 0)


def _scaled_self(self: torch.Tensor, other: Any, alpha: Any = 1) -> Any:
    return (self * (0 if alpha == 1 else alpha)).abs().nan_to_num(0, 0, 0)


def _modulus(self: torch.Tensor, other: Any) -> Any:
    return (self * 0 + other).abs().nan_to_num(0, 0, 0)


def _fmod(self: torch.Tensor, other: Any) -> Any:
    """C's fmod: the vectorized one of PyTorch's CPU gives NaN where the quotient overflows."""
    import torch

    if not self.dtype.is_floating_point:
        return torch.fmod(self, other)
    with np.errstate(invalid="ignore"):
        return torch.as_tensor(np.fmod(self.numpy(), np.asarray(other)))


def _sums(m: Maker) -> Iterator[Case]:
    yield from elementwise(ANY, ANY)(m)
    # A power of two for 16-bit floats: rounding the product before the sum is optional.
    yield from elementwise(ANY, ANY, special=False, alpha=-2 if m.dtype in dt.HALVES else 3)(m)
    yield m.case("contiguous", m.tensor(3, 29), m.tensor(3, 29), alpha=2)
    yield m.case("contiguous", m.tensor(3, 29), m.tensor(3, 29), alpha=0)
    yield m.case("broadcast", m.tensor(3, 1), m.tensor(29), alpha=-0.5 if m.is_float else 4)


def _nonzero_pair(rounding_mode: Any = ()) -> Any:
    """Pairs without integer zeros in the divisor, where the result is undefined."""
    extra = {} if rounding_mode == () else {"rounding_mode": rounding_mode}

    def samples(m: Maker) -> Iterator[Case]:
        for kind, layout, shape in (
            ("contiguous", "contiguous", (3, 37)), ("strided", "transposed", (7, 11)),
            ("broadcast", "contiguous", (5, 1)), ("zero-size", "contiguous", (0, 4)), ("0-dim", "contiguous", ()),
        ):  # fmt: skip
            a = m.tensor(*((5, 13) if kind == "broadcast" else shape), layout=layout)
            sign = 1 if m.kind_of_dtype == "uint" else m.integers(*shape, high=2).view * 2 - 1
            b = m.values(m.integers(*shape, low=1, high=6).view * sign)
            if m.is_float:
                # Quotients away from whole numbers, where rounding would decide.
                b = m.tensor(*shape, low=0.3, high=3.1)
                whole = m.integers(*a.shape, low=-7, high=7).view
                a = m.values((whole + m.tensor(*a.shape, low=0.15, high=0.85, dtype="float64").view)
                             * b.view.astype("float64") * sign, layout=layout)  # fmt: skip
            yield m.case(kind, a, b, **extra)
        if m.is_float:
            # Small numbers whose products underflow.
            least = 2.0 ** {"float16": -13, "float64": -600}.get(m.dtype, -80)
            yield m.case("special", m.values(np.array([-3, 5, -5, 3, 2]) * least),
                         m.values(np.array([11, 3, 3, -7, -5]) * least), **extra)  # fmt: skip
            inf, nan = float("inf"), float("nan")
            yield m.case("special", m.values([1.0, -1.0, 0.0, -0.0, inf, nan, 1.0, 0.0]),
                         m.values([inf, -inf, 2.0, 2.0, 2.0, 2.0, nan, 0.0]), **extra)  # fmt: skip
            # Quotients that halves have to round; numbers, remainders, quotients beyond float16, and denormal.
            yield m.case(
                "contiguous",
                m.values([1000, 2040, 777, 3000, 2040]),
                m.values([2.9, 0.7, -1.9, 0.31, 0.7]),
                **extra,
            )
            if rounding_mode != "trunc":  # PyTorch rounds the quotient first
                yield m.case("contiguous", m.values(_WHOLE), m.values([0.1] * len(_WHOLE)), **extra)
            small, far = denormals(m, 3).view.astype(float), 1.0 if m.dtype == "float16" else 2.0**20
            yield m.case("special", m.values([3.5 * far, -3.5 * far, 3 * 2.0**10 * far, *small]),
                         m.values([far, far, 2.0**-3, 2.0, 3.0, -2.0]), **extra)  # fmt: skip
        if m.dtype == "float64":  # not computed via float32
            yield m.case("special", m.values([3.0 * 2**30 + 3]), m.values([3.0]), **extra)
        if m.dtype == "int64":  # not computed via float64
            large = [2**53 + 1, -(2**53) - 1, 2**62 + 3, -(2**62) - 3]
            yield m.case("special", m.values(large), m.values([1, 3, 7, -5]), **extra)

    return samples


def _overflows(**extra: Any) -> Any:
    """Quotients of finite numbers that overflow."""

    def samples(m: Maker) -> Iterator[Case]:
        if m.is_float:
            most = float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).max)
            yield m.case(
                "special",
                m.values([most, -most, most / 2, 3.0]),
                m.values([0.125, 1e-3, -0.25, 2.0]),
                **extra,
            )

    return samples


_ADD = Tolerance(0.501, 1, "correctly rounded; with an alpha, its product is rounded before")
_QUOTIENT = Tolerance(0.501, 0, "whole numbers")
_POWER = transcendental(16, POWER)


def _far_terms(first: float, second: float, value: float) -> Any:
    """Terms of which a part overflows in float32 if they are combined in another order."""

    def samples(m: Maker) -> Iterator[Case]:
        if m.dtype in ("float32", "bfloat16"):
            yield m.case("special", *[m.values([x, 1.0]) for x in (1.0, first, second)], value=value)
        if m.dtype == "float16" and second < 1:  # the constraint of addcdiv
            yield m.case("special", *[m.values([x, 1.0]) for x in (1.0, 30_000.0, 1024.0)], value=4)
        elif m.dtype == "float16":
            yield m.case("special", *[m.values([x, 1.0]) for x in (1.0, 512.0, 256.0)], value=2.0**-10)

    return samples


def _lerp(self: torch.Tensor, end: torch.Tensor, weight: Any) -> Any:
    return self.abs() + (end.abs() + self.abs()) * abs(weight)


def _addcmul(self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, value: Any = 1) -> Any:
    return self.abs() + abs(value) * (tensor1 * tensor2).abs()


def _addcdiv(self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, value: Any = 1) -> Any:
    return self.abs() + abs(value) * (tensor1 / tensor2).abs()


def _ones(self: torch.Tensor) -> Any:
    import torch

    return torch.ones_like(self)


_FUSED = Tolerance(0.51, 4, "up to four roundings before the last")
_TRIPLE = ("broadcast(self, tensor1, tensor2)", "self.dtype")
_plain, _finite = elementwise(ANY, ANY), elementwise(ANY, ANY, special=False)

OPERATORS: list[Operator] = [
    *[op(name, kinds, *LIKE, elementwise(span), limit, magnitude=_ones if name == "erf" else None,
         extreme=(*MODERATE, 89.0, -89.0) if name in ("sinh", "cosh") else None)
      for name, kinds, span, limit in _UNARY],
    op("add.Tensor", dt.NUMBERS, *PAIR, _sums, _ADD, magnitude=_scaled_sum),
    op("sub.Tensor", dt.NUMBERS, *PAIR, _sums, _ADD, magnitude=_scaled_sum),
    op("rsub.Scalar", dt.NUMBERS, *LIKE,
       several(_scalar(3, 0.75, -5), _two(3, {"alpha": 2}), _two(7, {"alpha": 0}), _exact_alpha,
               _denormal_terms), _ADD, magnitude=_scaled_self),
    op("add.Scalar", dt.NUMBERS, *LIKE,
       several(_scalar(3, 0.75, -11.5), _two(3, {"alpha": 2}), _two(5, {"alpha": 0}), _exact_alpha, _wide_number),
       _ADD, magnitude=_scaled_sum),
    op("sub.Scalar", dt.NUMBERS, *LIKE,
       several(_scalar(3, 0.75, -7), _two(3, {"alpha": 2}), _two(5, {"alpha": 0}), _exact_alpha, _wide_number),
       _ADD, magnitude=_scaled_sum),
    op("mul.Tensor", dt.ALL, *PAIR, _plain, ROUNDED),
    op("mul.Scalar", dt.NUMBERS, *LIKE, several(_scalar(3, 0.1, -1, 0, 1), _wide_number), SCALED),
    op("div.Tensor", dt.FLOATS, *PAIR, _plain, ROUNDED),
    op("div.Scalar", dt.FLOATS, *LIKE, several(_scalar(3, 0.7, -0.4, 1), _far_number), SCALED),
    op("div.Tensor_mode", dt.NUMBERS, *PAIR, several(_nonzero_pair("floor"), _nonzero_pair("trunc"),
               _overflows(rounding_mode="floor"), _overflows(rounding_mode="trunc")), _QUOTIENT,
       paired=True, limits=False, extreme=()),
    op("div.Scalar_mode", dt.NUMBERS, *LIKE,
       several(_scalar(3, rounding_mode="floor", special=False),
               _scalar(3, rounding_mode="trunc", special=False), _scalar(-4, rounding_mode="floor", special=False),
               _scalar(-4, rounding_mode="trunc", special=False),
               _long_quotients), _QUOTIENT, limits=False),
    op("floor_divide", dt.NUMBERS, *PAIR, several(_nonzero_pair(), _overflows()), _QUOTIENT,
       paired=True, limits=False, extreme=()),
    op("fmod.Tensor", dt.NUMBERS, *PAIR, _nonzero_pair(), EXACT, paired=True, limits=False, extreme=(),
       reference=_fmod),
    op("fmod.Scalar", dt.NUMBERS, *LIKE, several(_scalar(3, 0.75, -2, -1.25, 100, 2.0**20), _infinite_divisor,
                              _rounded_divisor), EXACT, limits=False, reference=_fmod, rounds_numbers=True),
    op("remainder.Tensor", dt.NUMBERS, *PAIR, _nonzero_pair(), _ADD,
       magnitude=_modulus, paired=True, limits=False, extreme=()),
    op("remainder.Scalar", dt.NUMBERS, *LIKE, several(_scalar(3, 0.75, -2, -1.25, 100, 2.0**20), _infinite_divisor,
                                   _rounded_divisor), _ADD, limits=False, magnitude=_modulus, rounds_numbers=True),
    op("maximum", dt.ALL, *PAIR, _plain, CHOSEN),
    op("minimum", dt.ALL, *PAIR, _plain, CHOSEN),
    op("atan2", dt.FLOATS, "broadcast(self, other)", "promote(self, other)", _plain, transcendental(6, LIBRARY)),
    op("pow.Tensor_Scalar", dt.NUMBERS, *LIKE, powers, _POWER, extreme=POWERS),
    op("pow.Tensor_Tensor", dt.NUMBERS, "broadcast(self, exponent)", "promote(self, exponent)",
       several(elementwise((0.05, 3), (-2, 2), special=False), whole_powers, far_powers, whole_pairs), _POWER,
       extreme=()),
    op("pow.Scalar", dt.NUMBERS, "like(exponent)", "exponent.dtype", power_base, _POWER, extreme=()),
    op("clamp", dt.NUMBERS, *LIKE, clamps),
    op("clamp.Tensor", dt.NUMBERS, "broadcast(self, min, max)", "self.dtype", tensor_clamps, CHOSEN),
    op("clamp_min", dt.NUMBERS, *LIKE, several(elementwise(ANY, min=1), scalar_bounds("min"), low_bound)),
    op("clamp_max", dt.NUMBERS, *LIKE, several(elementwise(ANY, max=1), scalar_bounds("max"), large_bound)),
    op("lerp.Scalar", dt.FLOATS, "broadcast(self, end)", "self.dtype",
       several(elementwise(ANY, ANY, special=False, weight=0.1),
               elementwise(ANY, ANY, special=False, weight=0.9),
               *[points([-2.5, 3.0, 0.25, 7.0], [1.5, -4.0, 0.25, 7.5], weight=w) for w in (0, 1, 0.5, -0.75, 2.25)]),
       _FUSED, magnitude=_lerp,
       special=ONLY_NAN),
    op("lerp.Tensor", dt.FLOATS, "broadcast(self, end, weight)", "self.dtype",
       several(elementwise(ANY, ANY, (0, 1), special=False), elementwise(ANY, ANY, ANY, special=False),
               points([-2.5, 3.0, 0.25, 7.0], [1.5, -4.0, 0.5, 7.5], [0.0, 1.0, 0.5, -0.0])), _FUSED, magnitude=_lerp,
       special=ONLY_NAN),
    op("addcmul", dt.FLOATS, *_TRIPLE,
       several(elementwise(ANY, ANY, ANY, special=False), elementwise(ANY, ANY, ANY, special=False, value=0.01),
               *[points([-2.5, 3.0, 0.25], [1.5, -4.0, 7.5], [0.5, 3.5, -6.0], value=v) for v in (0, -1, -2.5, 1.5)],
               _far_terms(1e25, 1e25, 1e-30)), _FUSED, magnitude=_addcmul, denormal=False),
    op("addcdiv", dt.FLOATS, *_TRIPLE,
       several(elementwise(ANY, ANY, (0.2, 3), special=False),
               elementwise(ANY, ANY, (0.2, 3), special=False, value=-0.001),
               *[points([-2.5, 3.0, 0.25], [1.5, -4.0, 7.5], [0.5, 3.5, -6.0], value=v) for v in (0, -1, 2.5, 1.5)],
               _far_terms(2e-38, 1e-39, 0.5)), _FUSED, magnitude=_addcdiv, denormal=False),
    *[op(f"bitwise_{name}.Tensor", BITS, *PAIR, _finite) for name in ("and", "or", "xor")],
    *[op(f"bitwise_{name}.Scalar", dt.INTEGERS, *LIKE,
       several(_scalar(5, 0, -3), _wide_number)) for name in ("and", "or", "xor")],
    *[op(f"bitwise_{side}_shift.Tensor", dt.INTEGERS, *PAIR, _shifts) for side in ("left", "right")],
]  # fmt: skip
