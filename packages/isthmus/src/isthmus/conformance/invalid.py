"""Calls with an index out of range, which an operator refuses (:mod:`isthmus.opset.indices`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from isthmus.conformance.cases import Case, Expected, Tensor
from isthmus.opset.indices import INDICES, Index
from isthmus.opset.schema import Schema


def invalid_calls(schema: Schema, case: Case) -> Iterator[tuple[str, Case]]:
    """Yield a case with one index out of range, for each end of the range and of the dtype, and the description.

    The nearest come first: a kernel that accepts one may end the process with a farther one.
    """
    rule = INDICES.get(schema.name)
    if rule is None:
        return
    given = dict(zip([a.name for a in schema.inputs], case.arguments, strict=True))
    value = given[rule.argument]
    items = value if isinstance(value, (list, tuple)) else [value]
    for i, tensor in enumerate(items):
        if not isinstance(tensor, Tensor) or not tensor.array.size or tensor.storage.dtype.kind != "i":
            continue
        size = _size(rule, i, given | dict(zip([a.name for a in schema.outputs], case.outputs, strict=True)))
        ends = np.iinfo(tensor.storage.dtype)
        for index in (-size - 1 if rule.negative else -1, size, int(ends.max), int(ends.min)):
            if rule.ignored and index == given[rule.ignored]:
                continue
            storage = tensor.storage.copy()
            storage[tensor.offset] = index
            changed = replace(tensor, storage=storage)
            replaced = [*items[:i], changed, *items[i + 1 :]] if items is value else changed
            arguments = [replaced if name == rule.argument else each for name, each in given.items()]
            label = f"{rule.argument}[{i}]" if items is value else rule.argument
            yield f"index {index} of {label}, whose size is {size}", replace(case, arguments=arguments)


def _size(rule: Index, item: int, given: dict[str, Any]) -> int:
    of = given[rule.of]
    if isinstance(of, int):
        return of
    shape = of.shape if isinstance(of, (Tensor, Expected)) else ()
    if not shape:
        return 1
    dim = item if rule.dim is None else given[rule.dim] if isinstance(rule.dim, str) else rule.dim
    dim %= len(shape)
    return math.prod(shape[dim : dim + rule.dims])
