"""The specification of one operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from isthmus.opset import dtypes as dt
from isthmus.opset.sampling import Case, Maker

Samples = Callable[[Maker], Iterator[Case]]
Reference = Callable[..., Any]


@dataclass(frozen=True)
class Tolerance:
    """Maximum distance of a result from the reference.

    A float element ``got`` passes if ``|got - ref| <= ulp * ulp_of(dtype, ref) + accumulate * eps * magnitude``,
    where eps is that of the compute dtype (float32 for 16-bit floats) and magnitude is the sum of absolute values of
    the operator's terms. If both are 0, the result must be bit-equal. Integers and bool are always exact.

    Attributes:
        ulp: units in the last place of the result's dtype.
        accumulate: rounding steps of the compute dtype, relative to the magnitude.
        reason: justification.
    """

    ulp: float = 0.0
    accumulate: float = 0.0
    reason: str = "moves data"


EXACT = Tolerance()
SPECIAL = (math.nan, math.inf)
ONLY_NAN = (math.nan,)
# Extremes of functions by exp(x) or exp(-x), which overflows before they do.
MODERATE = (86.0, -86.0, 30_000.0, -30_000.0, 1e30, -1e30, 1e-3, -0.0)
# Extremes of powers: exp(y log x) is inaccurate where a power is large, and the sign of 0 ** -0.5 is open.
POWERS = (70_000.0, -70_000.0, 1e9, -1e9, 1e-9, 1.5, -1.0)
# Slightly above 0.5 ulp: the reference is rounded to float64, and 16-bit results may be rounded from float32.
ROUNDED = Tolerance(0.501, 0, "one operation, correctly rounded")
CHOSEN = Tolerance(0.5, 0, "one of the inputs; the sign of a zero is open")

# Vendors build to the limits of the OpenCL specification, section 7.4; a few functions have none there.
LIBRARY = "a device's math library, by OpenCL's limit,"
POWER = "exp(y log x) in working precision, by OpenCL's limit,"
_HALF = Tolerance(0.51, 0, "computed in float32, rounded once")
SCALED = {
    "": ROUNDED,
    "float32": Tolerance(
        1.5, 0, "the number is rounded to float32, and maybe inverted, before one operation"
    ),
    "bfloat16": _HALF,
    "float16": _HALF,
}
ROOT = {"": Tolerance(1, 0, "a root within 1 ulp"), "bfloat16": _HALF, "float16": _HALF}


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        name: canonical overload, ``aten::add.Tensor``.
        dtypes: dtypes of its tensors, except index, mask and mixed-precision arguments.
        shape: rule for the shapes of its outputs, an expression over its arguments (:mod:`isthmus.opset.rules`).
        dtype: rule for their dtypes.
        samples: creates its test cases.
        tolerance: tolerance per dtype.
        reference: computes the results in float64 from torch tensors; None is the ATen operator on CPU.
        magnitude: computes sums of absolute values, one per result; None if no tolerance accumulates.
        law: for random operators, instead of a reference: the distribution of each result by name
            (:class:`isthmus.conformance.golden.Expected`).
        distinct: whether its elements must differ, because the order of ties is unspecified.
        paired: whether its tensors' values belong together, so that they must not be combined or left out.
        longest: maximum elements of a derived tensor, if its tolerance does not hold for longer reductions.
        leading: whether tensors of the highest rank may have any number of leading dimensions.
        resizable: whether a size may be replaced wherever it occurs in its tensors and arguments, because no value of
            its tensors depends on it.
        empty: whether derived dimensions may be empty; False if the mean of nothing is unspecified.
        extreme: finite values that overflow a naive formula, not the right one. None stands for the extremes of the
            dtype and of functions for pointwise operators, for none of others.
        denormal: whether denormal inputs are tested; False where valid formulas underflow, or round them twice.
        limits: whether it is defined for the limits of integers; False for divisions.
        rounds_numbers: whether its numbers are rounded to the dtype of its tensors first, as on CPU and CUDA.
        strided: whether tensors may be strided; False where PyTorch requires contiguous tensors.
        special: tested values among NaN and infinity; not infinity if valid orders of evaluation differ in
            infinity or NaN.
        schema: schema text, for extension operators.
        differentiable: arguments with a gradient, for extension operators.
        package: module whose import registers an extension operator with PyTorch.
        family: its module in :mod:`isthmus.opset.families`.
    """

    name: str
    dtypes: tuple[str, ...]
    shape: str
    dtype: str
    samples: Samples
    tolerance: dict[str, Tolerance]
    reference: Reference | None = None
    magnitude: Reference | None = None
    law: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    distinct: bool = False
    paired: bool = False
    longest: int = 1 << 22
    empty: bool = True
    extreme: tuple[float, ...] | None = None
    denormal: bool = True
    limits: bool = True
    rounds_numbers: bool = False
    leading: bool = False
    resizable: bool = False
    strided: bool = True
    special: tuple[float, ...] = SPECIAL
    schema: str = ""
    differentiable: tuple[str, ...] = ()
    package: str = ""
    family: str = ""

    @property
    def broadcasts(self) -> bool:
        """Whether its tensors are broadcast."""
        return self.shape.startswith("broadcast")

    @property
    def pointwise(self) -> bool:
        """Whether each element of its result depends on one element of each tensor."""
        from isthmus.opset import records

        tagged = "pointwise" in records()[self.name]["tags"] or self.name == "aten::floor_divide"
        return tagged or self.shape == "[t.shape for t in self]"

    def of_family(self, family: str) -> Operator:
        """A copy of the operator with the given family."""
        return replace(self, family=family)


def op(
    name: str,
    dtypes: tuple[str, ...],
    shape: str,
    dtype: str,
    samples: Samples,
    tolerance: Tolerance | dict[str, Tolerance] = EXACT,
    **others: Any,
) -> Operator:
    """Specify an ATen operator by name, without ``aten::``.

    The tolerance is one for all dtypes, or ``{"": default, "float32": ...}``.
    """
    table = {"": tolerance} if isinstance(tolerance, Tolerance) else tolerance
    per_dtype = {each: table.get(each, table.get("", EXACT)) for each in dtypes}
    full = name if "::" in name else f"aten::{name}"
    return Operator(full, dtypes, shape, dtype, samples, per_dtype, **others)


def extension(
    schema: str,
    shape: str,
    dtype: str,
    samples: Samples,
    tolerance: Tolerance | dict[str, Tolerance],
    differentiable: str = "",
    dtypes: tuple[str, ...] = dt.FLOATS,
    **others: Any,
) -> Operator:
    """Specify an operator of :mod:`isthmus.ops` by schema, without namespace.

    Differentiable arguments are separated by spaces.
    """
    name = schema.partition("(")[0]
    return op(
        f"isthmus::{name}", dtypes, shape, dtype, samples, tolerance, schema=f"isthmus::{schema}",
        differentiable=tuple(differentiable.split()), package="isthmus.ops", **others,
    )  # fmt: skip


def transcendental(ulp: float, what: str = "a good libm") -> dict[str, Tolerance]:
    """Tolerance of a transcendental function: ``ulp`` for float32 and float64; 16-bit floats are rounded once."""
    exact = Tolerance(ulp, 0, f"{what} is within {ulp:g} ulp")
    return {"": exact, "bfloat16": _HALF, "float16": _HALF}


def accumulated(steps: float, what: str, ulp: float = 0.51) -> Tolerance:
    """Tolerance of a sum: ``steps`` roundings in the compute dtype, relative to the sum of absolute values."""
    return Tolerance(ulp, steps, what)
