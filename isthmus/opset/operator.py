"""What the opset says of one operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from isthmus.opset import dtypes as dt
from isthmus.opset.derived import derived
from isthmus.opset.sampling import Case, Maker

Samples = Callable[[Maker], Iterator[Case]]
Reference = Callable[..., Any]


@dataclass(frozen=True)
class Tolerance:
    """How far a result may be from the reference.

    A float element ``got`` passes if ``|got - ref| <= ulp * ulp_of(dtype, ref) + accumulate * eps * magnitude``,
    where eps is that of the dtype computed in (float32 for halves) and magnitude is what the operator sums in
    absolute values. Where both are 0 the bits must be the reference's. Integers and bool are always exact.

    Attributes:
        ulp: units in the last place of the result's dtype.
        accumulate: rounding steps of the compute dtype, relative to the magnitude.
        reason: why that much.
    """

    ulp: float = 0.0
    accumulate: float = 0.0
    reason: str = "moves data"


EXACT = Tolerance()
SPECIAL = (math.nan, math.inf)
ONLY_NAN = (math.nan,)
# The reference is itself rounded to float64, a half may be rounded by way of float32: hence a little above a half.
ROUNDED = Tolerance(0.501, 0, "one operation, correctly rounded")
CHOSEN = Tolerance(0.5, 0, "one of the inputs; the sign of a zero is open")

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
        dtypes: of its tensors (index, mask and mixed-precision arguments apart).
        shape: rule for the shapes of its outputs, an expression over its arguments (:mod:`isthmus.opset.rules`).
        dtype: rule for their dtypes.
        samples: makes its test cases.
        tolerance: per dtype.
        reference: results in float64 from torch tensors; None is the ATen operator itself on CPU.
        magnitude: sums of absolute values, one for each result; None where no tolerance accumulates.
        law: of a random operator, in place of a reference: from the arguments, the law of each result by name
            (:class:`isthmus.conformance.golden.Expected`).
        strided: whether its tensors may be strided: not where PyTorch itself insists on contiguous ones.
        special: which of NaN and infinity it is tried with: not infinity where orders of evaluation that are
            equally right give an infinity or NaN.
        schema: of an operator that is not PyTorch's own: its text.
        differentiable: of an operator that is not PyTorch's own: the arguments that it has a gradient for.
        package: module that registers such an operator with PyTorch when it is imported.
        family: file of :mod:`isthmus.opset.families` that it is in.
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
    strided: bool = True
    special: tuple[float, ...] = SPECIAL
    schema: str = ""
    differentiable: tuple[str, ...] = ()
    package: str = ""
    family: str = ""

    @property
    def broadcasts(self) -> bool:
        """Whether its tensors are broadcast against each other."""
        return self.shape.startswith("broadcast")

    def of_family(self, family: str) -> Operator:
        """The same operator, in that family."""
        return replace(self, family=family)

    def cases(self, dtype: str, seed: int = 0) -> list[Case]:
        """Its test cases for one dtype; the same for the same seed."""
        maker = Maker(self.name, dtype, seed)
        own = list(self.samples(maker))
        if self.law:
            return own
        moves = self.tolerance[dtype].ulp == self.tolerance[dtype].accumulate == 0
        return [*own, *derived(maker, own, self.strided, self.special, self.broadcasts, moves)]


def op(
    name: str,
    dtypes: tuple[str, ...],
    shape: str,
    dtype: str,
    samples: Samples,
    tolerance: Tolerance | dict[str, Tolerance] = EXACT,
    **others: Any,
) -> Operator:
    """An operator; its name without ``aten::``, one tolerance for all dtypes or ``{"": ..., "float32": ...}``."""
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
    """An operator of :mod:`isthmus.ops`; its schema without namespace, its differentiable arguments as one text."""
    name = schema.partition("(")[0]
    return op(
        f"isthmus::{name}", dtypes, shape, dtype, samples, tolerance, schema=f"isthmus::{schema}",
        differentiable=tuple(differentiable.split()), package="isthmus.ops", **others,
    )  # fmt: skip


def transcendental(ulp: float, what: str = "a good libm") -> dict[str, Tolerance]:
    """Tolerance of a function that hardware approximates: as stated for float32 and float64; halves are rounded."""
    exact = Tolerance(ulp, 0, f"{what} is within {ulp:g} ulp")
    return {"": exact, "bfloat16": _HALF, "float16": _HALF}


def accumulated(steps: float, what: str, ulp: float = 0.51) -> Tolerance:
    """Tolerance of a sum: ``steps`` roundings of the compute dtype relative to the sum of absolute values."""
    return Tolerance(ulp, steps, what)
