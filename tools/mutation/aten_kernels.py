"""Correct kernels for operators missing in the NumPy library: PyTorch's CPU kernels in float64, rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from isthmus import opset
from isthmus.conformance.judge import rounded
from isthmus.opset import dtypes as dt
from isthmus.opset import reference, sampling
from isthmus.opset.library import HOST, IN_PLACE, STRIDED, Context, Entry
from tools.mutation.kernel import Array


def entry(name: str) -> Entry:
    """Return the kernel of an operator of the opset. Calling the kernel needs PyTorch."""
    return Entry(name, dt.mask(tuple(dt.DTYPES)), HOST | STRIDED | IN_PLACE, _kernel(name), False)


def _kernel(name: str) -> Callable[..., None]:
    schema = opset.schema_of(name)
    function: Any = None

    def kernel(*arguments: Any, context: Context) -> None:
        nonlocal function
        import torch

        function = function or opset.operators()[name].reference or reference.overload(name)
        inputs, outputs = arguments[: len(schema.inputs)], arguments[len(schema.inputs) :]
        given = {a.name: _given(v) for a, v in zip(schema.inputs, inputs, strict=True)}
        for argument in schema.arguments:
            if argument.omitted:
                given[argument.name] = _omitted(torch, argument.base, outputs, context)
        result = function(**given)
        _store(outputs, result if isinstance(result, tuple) else [result])
        for argument, value in zip(schema.inputs, inputs, strict=True):
            if argument.written:
                _store([value], [given[argument.name]])

    return kernel


def _given(value: Any) -> Any:
    if isinstance(value, list):
        return [_given(item) for item in value]
    if not isinstance(value, np.ndarray):
        return str(value) if isinstance(value, str) else value
    tensor = reference.to_torch(sampling.place(np.array(value)))
    return tensor.double() if tensor.is_floating_point() else tensor


def _omitted(torch: Any, base: str, outputs: Sequence[Any], context: Context) -> Any:
    if base == "Generator":
        return torch.Generator().manual_seed(context.seed & 0x7FFFFFFF)
    if base == "ScalarType" and outputs:
        name = dt.name_of(outputs[0].dtype)
        return torch.float64 if dt.DTYPES[name].kind == "float" else getattr(torch, name)
    return None


def _store(outputs: Sequence[Any], results: Any) -> None:
    for out, result in zip(outputs, results, strict=False):
        if isinstance(out, list):
            _store(out, result)
        elif out is not None:
            values: Array = reference.from_torch(result)
            name = dt.name_of(out.dtype)
            out[...] = rounded(values, name) if dt.DTYPES[name].kind == "float" else values
