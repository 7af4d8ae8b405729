"""The batches of a case, and the case with some of its rows, or with rows repeated."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from isthmus import opset
from isthmus.conformance.arrays import Array
from isthmus.conformance.cases import Case, Expected, Tensor, named
from isthmus.conformance.relations import ALONG, BATCHES, Rows
from isthmus.opset.schema import Schema


def has_rows(operator: str) -> bool:
    """Whether cases of an operator may have batches."""
    if operator in BATCHES or operator in ALONG:
        return True
    known = opset.operators().get(operator)
    return known is not None and known.pointwise and known.shape.startswith(("like", "broadcast"))


def batches_of(schema: Schema, case: Case) -> Iterator[Rows]:
    """Yield the batches of a case with more than one row."""
    given = named(schema, case)
    if case.operator in BATCHES:
        found: Sequence[Rows] = BATCHES[case.operator]
    elif case.operator in ALONG:
        found = _beside_dim(schema, given)
    else:
        shapes = {value.shape for value in given.values() if isinstance(value, Tensor)}
        same = len(shapes) == 1 and shapes == {e.shape for e in case.outputs if isinstance(e, Expected)}
        rows = Rows({n: 0 for n, v in given.items() if isinstance(v, Tensor)}, {schema.outputs[0].name: 0})
        found = [rows] if same and () not in shapes else []
    shapes_of = {
        result.name: expected.shape
        for result, expected in zip(schema.outputs, case.outputs, strict=True)
        if isinstance(expected, Expected)
    }
    for rows in found:
        count = count_rows(rows, given)
        fits = all(shapes_of.get(n, ())[axis : axis + 1] == (count,) for n, axis in rows.results.items())
        if count > 1 and fits and not (case.operator.endswith("group_norm") and given["N"] != count):
            yield rows


def count_rows(rows: Rows, given: dict[str, Any]) -> int:
    """Return the number of rows, that of the first argument."""
    name, axis = next(iter(rows.arguments.items()))
    shape = given[name].shape
    return int(shape[axis]) if axis < len(shape) else 0


def take_rows(schema: Schema, case: Case, rows: Rows, part: Array) -> Case:
    """Return the case with some of its rows."""
    outputs = [
        _part(expected, rows.results.get(result.name), part)
        for result, expected in zip(schema.outputs, case.outputs, strict=True)
    ]
    arguments = _arguments_of(schema, case, rows, part)
    return replace(case, arguments=arguments, outputs=outputs, output_layout="contiguous")


def repeat_rows(schema: Schema, case: Case, rows: Rows, part: Array) -> Case:
    """Return the case with some of its rows, as often as they are named, without their expected values."""
    outputs = [
        _sized(expected, rows.results.get(result.name), len(part))
        for result, expected in zip(schema.outputs, case.outputs, strict=True)
    ]
    arguments = _arguments_of(schema, case, rows, part)
    return replace(case, arguments=arguments, outputs=outputs, output_layout="contiguous")


def _arguments_of(schema: Schema, case: Case, rows: Rows, part: Array) -> list[Any]:
    given = named(schema, case)
    count = count_rows(rows, given)
    for name, axis in rows.arguments.items():
        value = given[name]
        if isinstance(value, Tensor) and len(value.shape) > axis and value.shape[axis] == count:
            given[name] = Tensor.contiguous(value.array.take(part, axis))
    if rows.size:
        given[rows.size] = len(part)
    return list(given.values())


def _beside_dim(schema: Schema, given: dict[str, Any]) -> list[Rows]:
    """Return the first dimension that is not reduced."""
    rank = max(len(value.shape) for value in given.values() if isinstance(value, Tensor))
    dim = given.get("dim")
    if dim in (None, []) or not rank:
        return []
    dims = {d % rank for d in (dim if isinstance(dim, (list, tuple)) else [dim])}
    axis = next((axis for axis in range(rank) if axis not in dims), None)
    if axis is None:
        return []
    gone = 0 if given.get("keepdim", True) else sum(d < axis for d in dims)
    names = [name for name, value in given.items() if isinstance(value, Tensor)]
    return [Rows(dict.fromkeys(names, axis), {o.name: axis - gone for o in schema.outputs})]


def _part(expected: Any, axis: int | None, part: Array) -> Any:
    if axis is None or not isinstance(expected, Expected) or expected.reference is None:
        return expected
    reference = expected.reference.take(part, axis)
    magnitude = None if expected.magnitude is None else expected.magnitude.take(part, axis)
    return Expected(expected.dtype, reference.shape, reference, magnitude)


def _sized(expected: Any, axis: int | None, count: int) -> Any:
    if axis is None or not isinstance(expected, Expected):
        return expected
    return Expected(expected.dtype, (*expected.shape[:axis], count, *expected.shape[axis + 1 :]))
