"""Calls that an operator refuses (:mod:`isthmus.opset.indices`, :mod:`isthmus.opset.errors`), made of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from isthmus.conformance.cases import Case, Tensor, named
from isthmus.opset import dtypes as dt
from isthmus.opset.errors import NOT_EMPTY, ONE_DTYPE, PROBABILITIES
from isthmus.opset.indices import INDICES, indexed_size
from isthmus.opset.schema import Schema

_OTHER_DTYPES = {"float32": "float64", "float64": "float32", "bfloat16": "float16", "float16": "bfloat16"}


def invalid_calls(schema: Schema, case: Case) -> Iterator[tuple[str, Case]]:
    """Yield calls like a case that must fail, with a description of what is wrong with each."""
    given = named(schema, case)
    yield from _beyond_the_ends(schema, case, given)
    changes = (
        *_empty(schema.name, given),
        *_of_two_dtypes(schema.name, given),
        *_improbable(schema.name, given),
    )
    for text, change in changes:
        yield text, replace(case, arguments=list((given | change).values()))


def _empty(name: str, given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if name not in NOT_EMPTY or 0 in given["self"].shape:
        return
    shape, dim = given["self"].shape or (1,), given.get(NOT_EMPTY[name])
    dims = dim if isinstance(dim, (list, tuple)) else [] if dim is None else [dim]
    reduced = {d % len(shape) for d in dims} or {*range(len(shape))}
    shape = tuple(0 if i in reduced else n for i, n in enumerate(shape))
    empty = Tensor.contiguous(np.empty(shape, given["self"].storage.dtype))
    yield f"self of shape {list(shape)}", {"self": empty}


def _of_two_dtypes(name: str, given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if name not in ONE_DTYPE:
        return
    changed = given[ONE_DTYPE[name]]
    other = _OTHER_DTYPES.get(dt.name_of(changed.storage.dtype))
    if other and changed.array.size:
        storage = changed.storage.astype(dt.DTYPES[other].numpy)
        yield (
            f"{ONE_DTYPE[name]} of dtype {other} beside another",
            {ONE_DTYPE[name]: replace(changed, storage=storage)},
        )


def _improbable(name: str, given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for p in (-0.5, 1.5) if name in PROBABILITIES else ():
        yield f"{PROBABILITIES[name]} = {p}", {PROBABILITIES[name]: p}


def _beyond_the_ends(schema: Schema, case: Case, given: dict[str, Any]) -> Iterator[tuple[str, Case]]:
    """Yield a case with one index out of range, for each end of the range and of the dtype, and the description.

    The nearest come first: a kernel that accepts one may end the process with a farther one.
    """
    rule = INDICES.get(schema.name)
    if rule is None:
        return
    value = given[rule.argument]
    items = value if isinstance(value, (list, tuple)) else [value]
    for i, tensor in enumerate(items):
        if not isinstance(tensor, Tensor) or not tensor.array.size or tensor.storage.dtype.kind != "i":
            continue
        results = dict(zip([a.name for a in schema.outputs], case.outputs, strict=True))
        size = indexed_size(rule, i, given | results)
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
            yield f"{label} with the index {index} into a size of {size}", replace(case, arguments=arguments)
