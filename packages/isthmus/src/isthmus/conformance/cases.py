"""Cases of golden data: a call of an operator with its expected results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from isthmus.conformance.arrays import Array
from isthmus.opset.schema import Schema

LAYOUTS = ("contiguous", "strided", "zero-size", "0-dim", "broadcast", "large")


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor argument: a view on a storage.

    Attributes:
        storage: 1-D array of all elements, including those skipped by strides.
        shape: sizes.
        strides: in elements, not negative; 0 in an expanded dimension.
        offset: offset of the first element, in elements.
    """

    storage: Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def contiguous(cls, array: Array) -> Tensor:
        """Make a contiguous tensor of an array."""
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
        """Whether the elements are in row-major order without gaps."""
        expected = row_major(self.shape)
        same = (s == e or n == 1 for n, s, e in zip(self.shape, self.strides, expected, strict=True))
        return 0 in self.shape or all(same)


@dataclass(frozen=True, eq=False)
class Expected:
    """An expected result.

    Attributes:
        dtype: dtype of the result, by PyTorch's name.
        shape: shape of the result.
        reference: expected values: float64 for floats, complex128 for complex, else of ``dtype``; None for a random
            result.
        magnitude: the operator on absolute values, float64, for operators that accumulate errors; else None.
        law: law of a random result: ``{"name": "normal", "mean": m, "std": s}``, ``{"name": "uniform", "low": a,
            "high": b}``, ``{"name": "bernoulli", "p": p}``, ``{"name": "integers", "low": a, "high": b}``,
            ``{"name": "permutation"}``; ``{"name": "any"}`` if the values are unspecified.
    """

    dtype: str
    shape: tuple[int, ...]
    reference: Array | None = None
    magnitude: Array | None = None
    law: Mapping[str, Any] | None = None


class Tolerance(NamedTuple):
    """Tolerance of a float element: ``|got - ref| <= ulp * ulp_of(dtype, ref) + accumulate * eps * magnitude``.

    eps belongs to the compute dtype: float32 for the halves, else the dtype itself. 0 and 0 require equal bits.
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
        dtype: the tested dtype.
        layout: one of LAYOUTS.
        arguments: in the order of ``schema.inputs``.
        outputs: in the order of ``schema.outputs``; None if an output mask excludes the output.
        written: new values of the arguments that the operator writes.
        tolerance: tolerance of float results.
        output_layout: layout of the outputs, of :mod:`isthmus.opset.derivation.layouts`; or several, which they have
            in turn, separated by spaces.
    """

    id: str
    operator: str
    dtype: str
    layout: str
    arguments: Sequence[Value]
    outputs: Sequence[Result]
    tolerance: Tolerance
    written: Mapping[str, Result] = field(default_factory=dict)
    output_layout: str = "contiguous"


def named(schema: Schema, case: Case) -> dict[str, Any]:
    """Return the arguments of a case by name, in their order."""
    return dict(zip([a.name for a in schema.inputs], case.arguments, strict=True))


def tensors_of(arguments: Iterable[Value]) -> Iterator[Tensor]:
    """Yield the tensors of arguments, also those in lists."""
    for value in arguments:
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, Tensor):
                yield item


def results_of(case: Case) -> Iterator[Expected]:
    """Yield the expected results of a case, also those in lists and of arguments that are written."""
    for value in (*case.outputs, *case.written.values()):
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, Expected):
                yield item


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, in elements, as PyTorch does: a size of 0 counts as 1."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
