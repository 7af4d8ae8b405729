"""Run calls of a dump again: with their tensors, or with values drawn to have the recorded statistics."""

import math
from typing import Any

import torch
from torch._ops import OpOverload

from isthmus_diagnostics.accuracy.reading import Content, Recorded
from isthmus_diagnostics.debug import reference
from isthmus_diagnostics.debug.call import Call, written_arguments
from isthmus_diagnostics.debug.intercept import hide_calls, overload_named
from isthmus_diagnostics.debug.verdict import Difference, judge


class NotReplayed(Exception):
    """A call cannot be run again; the message is the reason in a few words."""


def describe_wrong_results(calls: list[Recorded]) -> str | None:
    """Return what is wrong with a call's results, "" if they are right, None if that cannot be judged."""
    found = ""
    for call in calls:
        try:
            differences = differences_of(call)
        except (NotReplayed, reference.NoReference):
            return None
        if differences and not found:
            found = differences[0].text
    return found


def differences_of(call: Recorded) -> list[Difference]:
    """Compare a call's results with the same overload on CPU in float64.

    Raises:
        NotReplayed, NoReference: it cannot be judged.
    """
    op, arguments = arguments_of(call)
    if any(str(a.type).endswith("Generator]") for a in op._schema.arguments):
        raise NotReplayed("draws random numbers")
    with hide_calls(), torch._C._DisableTorchDispatch():
        expected = reference.compute_expected(call.operator, arguments)
    results = list(call.outputs.items())
    if len(results) != len(expected.exact):
        raise NotReplayed("the number of results differs")
    found = []
    for index, (name, content) in enumerate(results):
        got = values_of(content)
        limit = reference.limit_of(call.operator, got.dtype)
        exact, native = expected.exact[index][1], expected.native[index]
        difference, _ = judge(name, got, exact, native, limit, expected.magnitudes[index])
        found += [difference] if difference else []
    return found


def arguments_of(call: Recorded, drawn: bool = False) -> tuple[OpOverload, dict[str, Any]]:
    """Return the overload and all arguments by name, tensors on CPU.

    Args:
        call: the call.
        drawn: draw values where the dump has only their statistics.

    Raises:
        NotReplayed: it is no operator, or not all arguments are known.
    """
    try:
        op = overload_named(call.operator)
    except AttributeError:
        raise NotReplayed("not an operator of this PyTorch") from None
    arguments = {declared.name: _argument(call, declared, drawn) for declared in op._schema.arguments}
    for name in written_arguments(op):  # overwritten without being read, so not in the dump
        if arguments[name] is None and call.outputs:
            first = next(iter(call.outputs.values()))
            arguments[name] = torch.zeros(first.shape, dtype=getattr(torch, first.dtype))
    return op, arguments


def call_of(op: OpOverload, arguments: dict[str, Any]) -> Call:
    """Return a call of an overload with arguments by name."""
    return Call(op.name(), op, (), arguments)


def _argument(call: Recorded, declared: Any, drawn: bool) -> Any:
    name = declared.name
    if name in call.inputs:
        return values_of(call.inputs[name], drawn)
    listed = [content for key, content in call.inputs.items() if key.startswith(f"{name}[")]
    if listed:
        return [values_of(content, drawn) for content in listed]
    if name in call.arguments:
        value = call.arguments[name]
        is_dtype = str(declared.type) in ("int", "Optional[int]") and isinstance(value, str)
        return getattr(torch, value) if is_dtype and hasattr(torch, value) else value
    if declared.has_default_value() or str(declared.type).startswith("Optional"):
        return declared.default_value
    if declared.alias_info is not None and declared.alias_info.is_write:
        return None
    raise NotReplayed(f"{name} is not in the dump")


def values_of(content: Content, drawn: bool = False) -> torch.Tensor:
    """Return the values of a tensor, or values with its statistics. Raises NotReplayed."""
    values = content.values
    if values is not None:
        return values
    if not drawn or content.statistics is None:
        raise NotReplayed("the dump has no values; dump tensors")
    return _draw(content)


def _draw(content: Content) -> torch.Tensor:
    """Draw values between the least and the most, with the same mean and norm as far as these allow."""
    s, dtype = content.statistics, getattr(torch, content.dtype)
    assert s is not None
    generator = torch.Generator().manual_seed(content.number)
    count = math.prod(content.shape)
    if not count or math.isnan(s.norm):
        return torch.zeros(content.shape, dtype=dtype)
    if dtype == torch.bool:
        return torch.rand(content.shape, generator=generator) < s.mean
    if not dtype.is_floating_point:
        if dtype.is_complex:
            raise NotReplayed("complex values are not drawn")
        return torch.randint(int(s.min), int(s.max) + 1, content.shape, generator=generator, dtype=dtype)
    deviation = math.sqrt(max(s.norm**2 / count - s.mean**2, 0.0))
    values = torch.randn(content.shape, generator=generator, dtype=torch.float64) * deviation + s.mean
    return values.clamp(s.min, s.max).to(dtype)
