"""Kernels as functions that can be replaced while the suite calls them."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from isthmus import opset
from isthmus.conformance.golden import Case, Expected, Tensor, Tolerance
from isthmus.drivers.libraries import LoadedOperator, import_tvm_ffi
from isthmus.opset import dtypes as dt
from isthmus.opset.library import Context, Entry, Library
from isthmus.opset.operator import SPECIAL
from isthmus.opset.schema import Argument, Schema

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
_OBJECT_HEADER_BYTES = 24  # sizeof(TVMFFIObject); a function's cell follows it and begins with the address


@dataclass
class Invocation:
    """A call of a kernel.

    Attributes:
        schema: of the operator.
        inputs: in the order of ``schema.inputs``; tensors as arrays over device memory.
        outputs: in the order of ``schema.outputs``.
        context: as passed by the suite.
    """

    schema: Schema
    inputs: list[Any]
    outputs: list[Any]
    context: Context

    def results(self) -> list[Array]:
        """All arrays written by the operator: outputs and modified arguments."""
        written = [
            value
            for a, value in zip(self.schema.inputs, self.inputs, strict=True)
            if a.is_tensor and a.written
        ]
        return list(flat([*self.outputs, *written]))

    def read(self) -> list[Array]:
        """Tensors that are only read."""
        pairs = zip(self.schema.inputs, self.inputs, strict=True)
        return list(flat(value for a, value in pairs if a.is_tensor and not a.written))

    def with_input(self, index: int, value: Any) -> Invocation:
        """Return the call with one input replaced."""
        return replace(self, inputs=[*self.inputs[:index], value, *self.inputs[index + 1 :]])

    def with_inputs(self, change: Callable[[Argument, Any], Any]) -> Invocation:
        """Return the call with every read-only tensor replaced by ``change(argument, array)``."""

        def each(argument: Argument, value: Any) -> Any:
            if not argument.is_tensor or argument.written or value is None:
                return value
            if isinstance(value, list):
                return [None if item is None else change(argument, item) for item in value]
            return change(argument, value)

        pairs = zip(self.schema.inputs, self.inputs, strict=True)
        return replace(self, inputs=[each(argument, value) for argument, value in pairs])


Call: TypeAlias = Callable[[Invocation], None]


def flat(values: Any) -> Iterator[Array]:
    """Yield the arrays in nested lists that may contain None."""
    for value in values:
        if isinstance(value, list):
            yield from flat(value)
        elif value is not None:
            yield value


@dataclass(frozen=True)
class Target:
    """A correct kernel to be mutated.

    Attributes:
        name: of the operator.
        schema: of the operator.
        flags: of the kernel (operators.h).
        cases: of the operator. They tell how it is called, never which mistakes the suite would find.
        broadcasts: whether its inputs are broadcast against each other.
        strided: whether the opset specifies strided tensors for it.
        special: whether the opset specifies NaN and infinity for it.
    """

    name: str
    schema: Schema
    flags: int
    cases: Sequence[Case]
    broadcasts: bool = False
    strided: bool = True
    special: tuple[float, ...] = SPECIAL

    def tensors(self) -> list[int]:
        """Positions of inputs that are single read-only tensors."""
        inputs = enumerate(self.schema.inputs)
        return [i for i, a in inputs if a.is_tensor and not a.is_list and not a.written]

    def some(self, condition: Callable[[Sequence[Any]], bool]) -> bool:
        """Whether the arguments of any case meet a condition."""
        return any(condition(case.arguments) for case in self.cases)

    def alike(self, left: int, right: int) -> bool:
        """Whether two inputs can have equal shapes and dtypes."""
        return self.some(lambda given: _kind(given[left]) == _kind(given[right]) is not None)

    @property
    def dtypes(self) -> set[str]:
        """The dtypes tested."""
        return {case.dtype for case in self.cases}

    @property
    def reads_floats(self) -> bool:
        """Whether a floating-point tensor is read."""
        reading = [i for i, a in enumerate(self.schema.inputs) if a.is_tensor and not a.written]
        return self.some(lambda given: any(_has_float(given[i]) for i in reading))

    @property
    def reads_tensors(self) -> bool:
        """Whether a tensor is read."""
        return any(a.is_tensor and not a.written for a in self.schema.inputs)

    @property
    def float_limits(self) -> list[tuple[str, Tolerance]]:
        """Dtype and tolerance of each known floating-point result."""
        return [
            (result.dtype, case.tolerance)
            for case in self.cases
            for result in _known_results(case)
            if dt.DTYPES[result.dtype].kind == "float"
        ]

    @property
    def random(self) -> bool:
        """Whether it draws random numbers."""
        return any(result.law for case in self.cases for result in _all_results(case))

    def result_sizes(self) -> Iterator[tuple[int, ...]]:
        """Shapes of all results of all cases."""
        return (result.shape for case in self.cases for result in _all_results(case))


def _kind(value: Any) -> Any:
    return (value.shape, value.storage.dtype) if isinstance(value, Tensor) else None


def _has_float(value: Any) -> bool:
    items = value if isinstance(value, (list, tuple)) else [value]
    return any(
        isinstance(item, Tensor) and dt.DTYPES[dt.name_of(item.storage.dtype)].kind == "float"
        for item in items
    )


def _all_results(case: Case) -> Iterator[Expected]:
    for result in (*case.outputs, *case.written.values()):
        for item in [result] if isinstance(result, Expected) or result is None else result:
            if item is not None:
                yield item


def _known_results(case: Case) -> Iterator[Expected]:
    return (result for result in _all_results(case) if result.reference is not None)


class Switch:
    """The kernel called by the suite, correct or mutated.

    Attributes:
        right: the correct kernel.
        current: the mutant called in its place, or None.
        operator: as passed to the suite's executor.
    """

    def __init__(self, name: str, schema: Schema, entry: Entry) -> None:
        self._schema = schema
        self.right = _plain(entry)
        self.current: Call | None = None
        library = Library("switch")
        library.entries[name] = entry._replace(function=self._call)
        function = import_tvm_ffi().convert(library.function(name, schema))
        self._kept = function
        handle = function.__chandle__()
        call = ctypes.c_void_p.from_address(handle + _OBJECT_HEADER_BYTES).value or 0
        self.operator = LoadedOperator(name, entry.dtypes, entry.flags, call, handle)

    def _call(self, *arguments: Any, context: Context) -> None:
        count = len(self._schema.inputs)
        invocation = Invocation(self._schema, list(arguments[:count]), list(arguments[count:]), context)
        (self.current or self.right)(invocation)


def _plain(entry: Entry) -> Call:
    takes_context = "context" in inspect.signature(entry.function).parameters

    def right(invocation: Invocation) -> None:
        extra = {"context": invocation.context} if takes_context else {}
        entry.function(*invocation.inputs, *invocation.outputs, **extra)

    return right


def target(name: str, entry: Entry, cases: Sequence[Case]) -> Target:
    """Describe a kernel for the mutations."""
    schema, operator = opset.schema_of(name), opset.operators().get(name)
    if operator is None:
        return Target(name, schema, entry.flags, cases)
    return Target(
        name, schema, entry.flags, cases, operator.broadcasts, operator.strided, tuple(operator.special)
    )
