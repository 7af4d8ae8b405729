"""Reference results of a call: the same overload on CPU, in float64 and in the call's dtypes."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from isthmus_diagnostics.debug.call import Call, replace_tensors
from isthmus_diagnostics.debug.intercept import call_on, numbers_as_tensors, overload_named
from isthmus_diagnostics.debug.verdict import Limit

# Results of these are discontinuous or depend on the dtype, so a wider dtype gives others.
_OWN_DTYPE = frozenset(
    """bucketize ceil floor floor_divide fmod frac frexp heaviside histc nan_to_num nextafter remainder round
    searchsorted sign signbit threshold threshold_backward trunc""".split()
)
# Names on accelerators, and the CPU's names of the same operators.
_STAND_INS = {
    "aten::convolution_overrideable": "aten::convolution",
    "aten::convolution_backward_overrideable": "aten::convolution_backward",
}
# A result of each is a workspace with private contents.
_OPAQUE = ("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward")
_WIDE = {torch.complex32: torch.complex128, torch.complex64: torch.complex128}


@dataclass
class Expected:
    """Results of a call on CPU, in the order of :meth:`Call.results`.

    Attributes:
        exact: names and tensors, floats in float64.
        native: results of the CPU kernel in the call's dtypes.
        magnitudes: sums of the absolute values of the terms; None if unknown.
    """

    exact: list[tuple[str, torch.Tensor]]
    native: list[torch.Tensor]
    magnitudes: list[torch.Tensor | None]


class NoReference(Exception):
    """The call has no reference; the message is the reason in a few words."""


def why_none(call: Call) -> str:
    """Return why a call has no reference, or ""."""
    if is_random(call):
        return "draws random numbers"
    if any(t.layout != torch.strided or t.is_quantized or t.is_nested for _, t in call.inputs()):
        return "has a tensor that is not strided"
    if call.name in _OPAQUE:
        return "returns a private workspace"
    return ""


def is_random(call: Call) -> bool:
    """Return whether the results depend on a generator; those of dropout with probability 0 do not."""
    chances = [call.arguments[name] for name in ("dropout_p", "dropout") if name in call.arguments]
    if chances:
        return any(bool(chance) for chance in chances)
    declared = any(str(a.type).endswith("Generator]") for a in call.op._schema.arguments)
    return declared or torch.Tag.nondeterministic_seeded in call.op.tags


def snapshot(call: Call) -> dict[str, Any]:
    """Return the arguments of a call by name, with every tensor copied to the CPU."""
    return {name: replace_tensors(value, _to_cpu) for name, value in call.arguments.items()}


def _to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    copy = tensor.detach().to("cpu", copy=True)
    return copy.resolve_conj().resolve_neg()


def compute_expected(name: str, arguments: dict[str, Any]) -> Expected:
    """Compute the reference from a snapshot.

    Raises:
        NoReference: the CPU does not support the operator with these dtypes or arguments.
    """
    name, arguments = _stand_in(name, arguments)
    op = overload_named(name)
    native = run(op, arguments, wide=False)
    exact = native
    if any(t.is_floating_point() or t.is_complex() for _, t in native) and not _is_own(op):
        try:
            exact = run(op, arguments, wide=True)
        except NoReference:  # it has no float64 kernel
            exact = native
    if len(exact) != len(native):
        raise NoReference("the number of results differs in float64")
    return Expected(exact, [t for _, t in native], _magnitudes(name, arguments, len(exact)))


def _stand_in(name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if name == "aten::convolution_backward_overrideable":
        grad, spatial = arguments["grad_output"], len(arguments["stride"])
        arguments = {**arguments, "bias_sizes": [grad.shape[grad.dim() - spatial - 1]]}
    return _STAND_INS.get(name, name), arguments


def _is_own(op: OpOverload) -> bool:
    base = op._schema.name.partition("::")[2].strip("_")
    return base in _OWN_DTYPE or "_mode" in op._overloadname


def run(op: OpOverload, arguments: dict[str, Any], wide: bool) -> list[tuple[str, torch.Tensor]]:
    """Run an overload on CPU copies of the arguments and return its results.

    Args:
        arguments: by name, tensors on CPU.
        wide: convert floats to float64, also dtypes given as arguments.

    Raises:
        NoReference: the call failed.
    """
    args, kwargs = _split_arguments(
        op, {name: _convert(name, value, wide) for name, value in arguments.items()}
    )
    try:
        returned = call_on(op, "CPU", args, kwargs)
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NoReference(f"failed on the CPU: {first}") from None
    return Call(op.name(), op, tuple(args), kwargs).results(returned)


def _split_arguments(op: OpOverload, values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    declared = op._schema.arguments
    args = [values[a.name] for a in declared if not a.kwarg_only]
    return args, {a.name: values[a.name] for a in declared if a.kwarg_only}


def _convert(name: str, value: Any, wide: bool) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if name == "pin_memory":
        return None
    if isinstance(value, torch.dtype):
        return wide_dtype(value) if wide else value
    if wide and name == "half_to_float":
        return False
    return replace_tensors(value, lambda tensor: _copy_tensor(tensor, wide))


def _copy_tensor(tensor: torch.Tensor, wide: bool) -> torch.Tensor:
    dtype = wide_dtype(tensor.dtype) if wide else tensor.dtype
    return tensor.to(dtype) if dtype != tensor.dtype else tensor.clone()


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return float64 for floats, complex128 for complex dtypes, and other dtypes unchanged."""
    return torch.float64 if dtype.is_floating_point else _WIDE.get(dtype, dtype)


def _magnitudes(name: str, arguments: dict[str, Any], count: int) -> list[torch.Tensor | None]:
    nothing: list[torch.Tensor | None] = [None] * count
    operator = _operator(name)
    if operator is None or operator.magnitude is None:
        return nothing
    wanted = {a.name for a in overload_named(operator.name)._schema.arguments}
    values = {key: _convert(key, value, True) for key, value in arguments.items() if key in wanted}
    try:
        made = numbers_as_tensors(lambda: operator.magnitude(**values))
    except Exception:  # arguments outside the opset's definition, such as fewer key heads than query heads
        return nothing
    flat = list(_flatten(made))
    return flat if len(flat) == count else nothing


def _flatten(value: Any) -> Any:
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, (tuple, list)):
            yield from _flatten(item)
        else:
            yield item


@cache
def _operator(name: str) -> Any:
    from isthmus import opset

    canonical = opset.canonical(_STAND_INS.get(name, name))
    return opset.operators().get(canonical) if canonical else None


def limit_of(name: str, dtype: torch.dtype) -> Limit:
    """Return the opset's tolerance for an overload and a dtype, or the default."""
    operator = _operator(name)
    found = operator and operator.tolerance.get(str(dtype).removeprefix("torch."))
    pointwise = torch.Tag.pointwise in overload_named(_STAND_INS.get(name, name)).tags
    if not found:
        return Limit(pointwise=pointwise)
    return Limit(found.ulp, found.accumulate, "opset", pointwise)
