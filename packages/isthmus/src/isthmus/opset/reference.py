"""Reference results of operators, computed by PyTorch on the CPU in float64.

PyTorch is imported when a reference is computed, not by importing this module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset import operators, schema_of
from isthmus.opset.operator import Operator
from isthmus.opset.sampling import Array, Case

if TYPE_CHECKING:
    import torch


@dataclass
class Expected:
    """Expected results of a call.

    Attributes:
        outputs: for each output of the schema an array, a list of arrays, or None.
        written: new values of the arguments that the operator writes to, by name.
        output_dtypes: dtype names of a call in the tested dtype, structured like ``outputs``.
        magnitudes: by name of output or written argument; empty without accumulation.
    """

    outputs: list[Any]
    written: dict[str, Any]
    output_dtypes: list[Any]
    magnitudes: dict[str, Any]


def to_torch(array: Array, device: str = "cpu") -> torch.Tensor:
    """Convert to a torch tensor with the same strides, over a copy of the storage."""
    import torch

    kind = getattr(torch, array.dtype)
    raw = torch.from_numpy(array.storage.copy().view(np.uint8))
    storage = raw.view(kind) if len(raw) else torch.empty(0, dtype=kind)
    return storage.to(device).as_strided(array.shape, array.strides, array.offset)


def from_torch(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Convert to a contiguous NumPy array; bfloat16 and float8 as ml_dtypes."""
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    # A copy: a tensor of one element is contiguous with any stride, which view() does not accept.
    plain = tensor.detach().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().view(dt.DTYPES[name].numpy).reshape(tensor.shape)


def torch_arguments(case: Case, upcast: bool, device: str = "cpu") -> dict[str, Any]:
    """The arguments of a case for PyTorch; with ``upcast``, floats and float dtypes become float64."""
    import torch

    rounds = upcast and operators()[case.operator].rounds_numbers and dt.DTYPES[case.dtype].kind == "float"

    def convert(name: str, base: str, value: Any) -> Any:
        if isinstance(value, list):
            return [convert(name, base, item) for item in value]
        if isinstance(value, Array):
            tensor = to_torch(value, device)
            return _widen(tensor) if upcast else tensor
        if base == "ScalarType" and value is not None:
            kind = getattr(torch, value)
            return torch.float64 if upcast and kind.is_floating_point else kind
        if base == "Device":
            return torch.device(device)
        if base == "Scalar" and rounds:
            return torch.tensor(value, dtype=torch.float64).to(getattr(torch, case.dtype)).item()
        return None if base in ("Layout", "MemoryFormat") else value

    return {
        a.name: convert(a.name, a.base, case.arguments[a.name]) for a in schema_of(case.operator).arguments
    }


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def overload(name: str) -> Callable[..., Any]:
    """The operator of this name in PyTorch."""
    import torch

    specified = operators().get(name)
    if specified and specified.package:
        importlib.import_module(specified.package)
    space, _, rest = name.partition("::")
    base, _, which = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), base), which or "default")


def call(
    function: Callable[..., Any], arguments: dict[str, Any], case: Case
) -> tuple[list[Any], dict[str, Any]]:
    """Call the operator or its reference; returns (outputs in the order of the schema, written arguments)."""
    schema = schema_of(case.operator)
    result = function(**arguments)
    written = {a.name: arguments[a.name] for a in schema.arguments if a.written}
    if not schema.outputs:
        return [], written
    return (list(result) if len(schema.returns) > 1 else [result]), written


def observe_outputs(case: Case) -> list[Any]:
    """PyTorch's outputs in the tested dtype, for their shapes and dtypes; on meta, else on the CPU."""
    if not schema_of(case.operator).outputs:
        return []
    registered = overload(case.operator)
    # The meta kernels of extensions are generated from the rules under test.
    for device in ("cpu",) if operators()[case.operator].package else ("meta", "cpu"):
        try:
            return call(registered, torch_arguments(case, False, device), case)[0]
        except (RuntimeError, NotImplementedError, TypeError) as error:
            reason = error
    raise RuntimeError(f"{case.id}: PyTorch rejects the call: {reason}")


def compute_expected(operator: Operator, case: Case) -> Expected:
    """Compute the reference results, and check the rules for shapes and dtypes.

    Raises:
        RuleError: a rule does not match PyTorch.
        RuntimeError: PyTorch rejects the call.
    """
    from isthmus.opset import rules

    # PyTorch's meta kernels reject invalid calls of its operators, the references those of extensions, whose kernels
    # trust their arguments.
    seen = [] if operator.package else observe_outputs(case)
    outputs, written = call(operator.reference or overload(case.operator), torch_arguments(case, True), case)
    seen = observe_outputs(case) if operator.package else seen
    if [item is None for item in seen] != [item is None for item in outputs]:
        raise RuntimeError(f"{case.id}: PyTorch's call and the reference differ in which outputs are None")
    kinds = [_mapped(_dtype_name, item) for item in seen]
    rules.check(case, "shape", operator.shape, [_mapped(lambda t: tuple(t.shape), item) for item in seen])
    rules.check(case, "dtype", operator.dtype, kinds)
    magnitudes = _magnitudes(operator, case) if operator.tolerance[case.dtype].accumulate else {}
    return Expected(
        [_mapped(_settle, item, kind) for item, kind in zip(outputs, kinds, strict=True)],
        {name: _mapped(_settle, item, dtypes_of(case.arguments[name])) for name, item in written.items()},
        kinds,
        magnitudes,
    )


def _magnitudes(operator: Operator, case: Case) -> dict[str, Any]:
    schema = schema_of(case.operator)
    if operator.magnitude is None:
        raise ValueError(f"{operator.name}: an accumulating tolerance needs a magnitude")
    arguments = torch_arguments(case, True)
    made = operator.magnitude(**arguments)
    values = made if isinstance(made, tuple) else (made,)
    names = [a.name for a in schema.arguments if a.written] + [a.name for a in schema.outputs]
    return {
        name: _mapped(lambda t: from_torch(t.double()), value)
        for name, value in zip(names, values, strict=True)
        if value is not None
    }


def absolutely(name: str) -> Callable[..., Any]:
    """Magnitude of an operator that is linear in each input: the operator on absolute values."""

    def positive(value: Any) -> Any:
        import torch

        if isinstance(value, list):
            return [positive(item) for item in value]
        if isinstance(value, torch.Tensor):
            return value.abs() if value.is_floating_point() else value
        return abs(value) if isinstance(value, float) else value

    def magnitude(**arguments: Any) -> Any:
        return overload(name)(**{key: positive(value) for key, value in arguments.items()})

    return magnitude


def _mapped(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [
            _mapped(function, item, *[o[i] for o in others]) for i, item in enumerate(value)
        ]  # fmt: skip
    return function(value, *others)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def dtypes_of(value: Any) -> Any:
    """Return the dtype of a tensor, those of a list; None for None."""
    if value is None:
        return None
    return [dtypes_of(item) for item in value] if isinstance(value, list) else value.dtype


def _settle(tensor: torch.Tensor, dtype: str) -> np.ndarray[Any, Any]:
    """Floats as float64, with overflow of the result's dtype as infinity; others in that dtype."""
    row = dt.DTYPES[dtype]
    values = from_torch(tensor)
    if row.kind == "complex":
        return values.astype(np.complex128)
    if row.kind != "float":
        return values.astype(row.numpy)
    wide = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = wide.astype(row.numpy).astype(np.float64)
    return np.where(np.isinf(rounded), rounded, wide)
