"""Run the calls of a dump of tensors again, and judge their results by a reference in float64."""

from typing import Any

import torch

from isthmus.accuracy.reading import Content, Recorded
from isthmus.debug import reference
from isthmus.debug.intercept import overload_named, quietly
from isthmus.debug.verdict import Difference, judge


class NotReplayed(Exception):
    """A call cannot be run again; the message is the reason in a few words."""


def wrong(calls: list[Recorded]) -> str | None:
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
    with quietly(), torch._C._DisableTorchDispatch():
        expected = reference.expected(call.operator, arguments)
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


def arguments_of(call: Recorded) -> tuple[Any, dict[str, Any]]:
    """Return the overload and all arguments by name, tensors on CPU.

    Raises:
        NotReplayed: it is no operator, or not all arguments are known.
    """
    try:
        op = overload_named(call.operator)
    except AttributeError:
        raise NotReplayed("not an operator of this PyTorch") from None
    arguments: dict[str, Any] = {}
    for declared in op._schema.arguments:
        arguments[declared.name] = _argument(call, declared)
    return op, arguments


def _argument(call: Recorded, declared: Any) -> Any:
    name = declared.name
    if name in call.inputs:
        return values_of(call.inputs[name])
    listed = {key: content for key, content in call.inputs.items() if key.startswith(f"{name}[")}
    if listed:
        return [values_of(content) for content in listed.values()]
    if name in call.arguments:
        value = call.arguments[name]
        is_dtype = str(declared.type) in ("int", "Optional[int]") and isinstance(value, str)
        return getattr(torch, value) if is_dtype and hasattr(torch, value) else value
    if declared.has_default_value() or str(declared.type).startswith("Optional"):
        return declared.default_value
    raise NotReplayed(f"{name} is not in the dump")


def values_of(content: Content) -> torch.Tensor:
    """Return the values of a tensor. Raises NotReplayed."""
    values = content.values
    if values is None:
        raise NotReplayed("the dump has no values; dump tensors")
    return values
