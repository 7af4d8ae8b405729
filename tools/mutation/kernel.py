"""Kernels as functions that can be replaced while the suite calls them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from isthmus import opset
from isthmus.drivers.libraries import LoadedOperator, address_of, import_tvm_ffi
from isthmus.opset import dtypes as dt
from isthmus.opset.library import Context, Entry, Library
from isthmus.opset.operator import Operator
from isthmus.opset.schema import Argument, Schema
from tools.mutation import ranks

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


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

    def given(self, *names: str) -> list[Any]:
        """Inputs by name."""
        by_name = dict(zip([a.name for a in self.schema.inputs], self.inputs, strict=True))
        return [by_name[name] for name in names]

    def read(self) -> list[Array]:
        """Tensors that are only read."""
        pairs = zip(self.schema.inputs, self.inputs, strict=True)
        return list(flat(value for a, value in pairs if a.is_tensor and not a.written))

    def with_input(self, index: int, value: Any) -> Invocation:
        """Return the call with one input replaced."""
        return replace(self, inputs=[*self.inputs[:index], value, *self.inputs[index + 1 :]])

    def with_inputs(self, change: Callable[[Argument, Any], Any]) -> Invocation:
        """Return the call with every read-only tensor replaced by ``change(argument, array)``."""

        pairs = zip(self.schema.inputs, self.inputs, strict=True)
        inputs = [mapped(partial(change, a), v) if a.is_tensor and not a.written else v for a, v in pairs]
        return replace(self, inputs=inputs)


Call: TypeAlias = Callable[[Invocation], None]


def flat(values: Any) -> Iterator[Array]:
    """Yield the arrays in nested lists that may contain None."""
    for value in values:
        if isinstance(value, list):
            yield from flat(value)
        elif value is not None:
            yield value


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Apply a change to a value, or to each of a list; None stays None."""
    if isinstance(value, list):
        return [mapped(change, item) for item in value]
    return None if value is None else change(value)


def is_read(argument: Argument) -> bool:
    """Whether an argument is a single tensor that is only read."""
    return argument.is_tensor and not argument.is_list and not argument.written


@dataclass(frozen=True)
class Target:
    """A correct kernel to be mutated, as its schema and its entry of the opset describe it.

    Nothing here is taken from samples: a mistake applies wherever a kernel of this operator could have it.

    Attributes:
        name: of the operator.
        schema: of the operator.
        flags: of the kernel (operators.h).
        operator: its entry of the opset.
    """

    name: str
    schema: Schema
    flags: int
    operator: Operator

    @property
    def dtypes(self) -> set[str]:
        """The dtypes that the opset specifies."""
        return set(self.operator.dtypes)

    @property
    def has_floats(self) -> bool:
        """Whether it computes on floating-point tensors."""
        return bool(self.dtypes & set(dt.FLOATS))

    @property
    def has_integers(self) -> bool:
        """Whether it computes on integer tensors."""
        return bool(self.dtypes & set(dt.INTEGERS))

    @property
    def float_results(self) -> bool:
        """Whether a result has a floating-point dtype."""
        return self.has_floats and not self.operator.dtype.startswith(('"bool"', '"int64"', '"uint8"'))

    @property
    def moves(self) -> bool:
        """Whether floating-point results are moved inputs, bit by bit."""
        limits = [limit for dtype, limit in self.operator.tolerance.items() if dtype in dt.FLOATS]
        return bool(limits) and all(limit.ulp == limit.accumulate == 0 for limit in limits)

    @property
    def random(self) -> bool:
        """Whether it draws random numbers."""
        return self.operator.law is not None

    @property
    def is_single(self) -> bool:
        """Whether each result has one element."""
        return self.operator.shape in ("()", "[() for t in self]", "((), (len(grads),))")

    @property
    def rank_read(self) -> int:
        """The largest rank of a tensor that it only reads; 0 for none."""
        read = [a.name for a in self.schema.inputs if a.is_tensor and not a.written]
        return max((ranks.largest_rank(self.name, name) for name in read), default=0)

    @property
    def rank_written(self) -> int:
        """The largest rank of a result; 0 if each has one element."""
        written = [a.name for a in self.schema.inputs if a.is_tensor and a.written]
        names = [*written, *(output.name for output in self.schema.outputs)]
        return 0 if self.is_single else max(ranks.largest_rank(self.name, name) for name in names)

    @property
    def reads(self) -> bool:
        """Whether it computes on the values of tensors that it does not write."""
        return any(a.is_tensor and not a.written for a in self.schema.inputs) and not self.random

    def tensors(self) -> list[int]:
        """Positions of inputs that are single read-only tensors."""
        return [i for i, argument in enumerate(self.schema.inputs) if is_read(argument)]

    def equal_outputs(self) -> Iterator[tuple[int, int]]:
        """Yield neighboring outputs whose rules of shape and dtype are the same."""
        rules = [ast.parse(text, mode="eval").body for text in (self.operator.shape, self.operator.dtype)]
        shapes, dtypes = (rule.elts if isinstance(rule, ast.Tuple) else [] for rule in rules)
        kinds = [(ast.dump(s), ast.dump(d)) for s, d in zip(shapes, dtypes, strict=False)]
        yield from ((i, i + 1) for i in range(len(kinds) - 1) if kinds[i] == kinds[i + 1])


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
        self._kept = import_tvm_ffi().convert(library.function(name, schema))
        self.operator = LoadedOperator(name, entry.dtypes, entry.flags, *address_of(self._kept))

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


def target(name: str, entry: Entry) -> Target:
    """Describe a kernel for the mutations."""
    return Target(name, opset.schema_of(name), entry.flags, opset.operators()[name])
