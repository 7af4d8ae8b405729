"""A case of golden data: one call of an operator, and what it must give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from isthmus.conformance.arrays import Array

LAYOUTS = ("contiguous", "strided", "zero-size", "0-dim", "broadcast", "large")


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor argument: a view on a storage.

    Attributes:
        storage: 1-D array of the elements, those between the strides included.
        shape: sizes.
        strides: in elements, not negative; 0 in an expanded dimension.
        offset: of the first element, in elements.
    """

    storage: Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def contiguous(cls, array: Array) -> Tensor:
        """The whole of an array, in row-major order."""
        return cls(np.ascontiguousarray(array).reshape(-1), array.shape, row_major(array.shape))

    @property
    def array(self) -> Array:
        """The view as a NumPy array."""
        size = self.storage.dtype.itemsize
        strides = [stride * size for stride in self.strides]
        if 0 in self.shape:
            return np.empty(self.shape, self.storage.dtype)
        return np.lib.stride_tricks.as_strided(
            self.storage[self.offset :], self.shape, strides, writeable=False
        )

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie in row-major order without gaps."""
        expected = row_major(self.shape)
        same = (s == e or n == 1 for n, s, e in zip(self.shape, self.strides, expected, strict=True))
        return 0 in self.shape or all(same)


@dataclass(frozen=True, eq=False)
class Expected:
    """What a result must be.

    Attributes:
        dtype: of the result, by PyTorch's name.
        shape: of the result.
        reference: the right values: float64 for floats, complex128 for complex, else of ``dtype``; None where
            only a law is known.
        magnitude: the operator on absolute values, float64, where rounding errors add up; None elsewhere.
        law: of a random result: ``{"name": "normal", "mean": m, "std": s}``, ``{"name": "uniform", "low": a,
            "high": b}``, ``{"name": "bernoulli", "p": p}``, ``{"name": "integers", "low": a, "high": b}``,
            ``{"name": "permutation"}``; ``{"name": "any"}`` where the operator leaves the values open.
    """

    dtype: str
    shape: tuple[int, ...]
    reference: Array | None = None
    magnitude: Array | None = None
    law: Mapping[str, Any] | None = None


class Tolerance(NamedTuple):
    """Of a float element: ``|got - ref| <= ulp * ulp_of(dtype, ref) + accumulate * eps * magnitude``.

    eps is that of the compute dtype: float32 for the halves, else the dtype's. 0 and 0 ask for the very bits.
    """

    ulp: float = 0.0
    accumulate: float = 0.0
    reason: str = ""


Value = Tensor | Sequence["Tensor | None"] | bool | int | float | str | Sequence[float] | None
Result = Expected | Sequence["Expected | None"] | None


@dataclass(frozen=True, eq=False)
class Case:
    """One call of an operator.

    Attributes:
        id: unique within the operator and dtype: "strided-3x4".
        operator: canonical overload: "aten::add.Tensor".
        dtype: of the tensors that the case is about.
        layout: one of LAYOUTS.
        arguments: in the order of ``schema.inputs``.
        outputs: in the order of ``schema.outputs``; None where an output mask leaves it out.
        written: new values of the arguments that the operator writes to.
        tolerance: of float results.
    """

    id: str
    operator: str
    dtype: str
    layout: str
    arguments: Sequence[Value]
    outputs: Sequence[Result]
    tolerance: Tolerance
    written: Mapping[str, Result] = field(default_factory=dict)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor as PyTorch gives them: a size of 0 counts as 1."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
