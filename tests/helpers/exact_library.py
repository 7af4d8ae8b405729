"""An operator library that computes every operator by the opset's reference in float64, and rounds once.

``isthmus conform run --library tests/helpers/exact_library.py``: whatever it fails is a false alarm.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus import opset
from isthmus.opset import dtypes as dt
from isthmus.opset import reference
from isthmus.opset.library import Context, Library
from isthmus.opset.operator import Operator
from isthmus.opset.sampling import Case, place, quantize

if sys.modules.get("torch", True) is None:
    del sys.modules["torch"]  # kernels are run without it

library = Library("exact", "every operator in float64")


def _kernel(operator: Operator) -> Any:
    schema = opset.schema_of(operator.name)
    inputs = [a.name for a in schema.inputs]

    def compute(*values: Any, context: Context) -> None:
        given, outs = values[: len(inputs)], list(values[len(inputs) :])
        arguments = dict(zip(inputs, map(_place_all, given), strict=True))
        for argument in schema.arguments:  # arguments that kernels are not given show in the outputs
            if argument.name not in arguments:
                is_dtype = argument.base == "ScalarType" and outs
                arguments[argument.name] = _dtype_of(outs[0]) if is_dtype else None
        dtype = next(_dtypes_of(given), operator.dtypes[0])  # numbers are rounded to it
        case = Case(operator.name, dtype, 0, "contiguous", arguments)
        function = operator.reference or reference.overload(operator.name)
        results, written = reference.call(function, reference.torch_arguments(case, upcast=True), case)
        by_name = dict(zip(inputs, given, strict=True))
        for out, result in [*zip(outs, results, strict=True), *((by_name[n], w) for n, w in written.items())]:
            _store(out, result)

    return compute


def _dtype_of(value: Any) -> str:
    return _dtype_of(value[0]) if isinstance(value, list) else dt.name_of(value.dtype)


def _dtypes_of(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, list):
            yield from _dtypes_of(value)
        elif isinstance(value, np.ndarray):
            yield dt.name_of(value.dtype)


def _place_all(value: Any) -> Any:
    if isinstance(value, list):
        return [_place_all(item) for item in value]
    return place(value) if isinstance(value, np.ndarray) else value


def _store(out: Any, result: Any) -> None:
    if isinstance(out, list):
        for item, value in zip(out, result, strict=True):
            _store(item, value)
    elif out is not None:
        values = reference.from_torch(result)
        out[...] = quantize(values, dt.name_of(out.dtype)) if values.dtype == np.float64 else values


for each in opset.operators().values():
    if not each.law:
        library.operator(each.name, dtypes=dt.ALL, strided=True, host=True)(_kernel(each))
