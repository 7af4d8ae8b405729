"""Kernels for the meta device: result shapes and dtypes from the rules of the opset."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from isthmus.opset import operators, rules, schema_of


class _Seen(NamedTuple):
    shape: tuple[Any, ...]
    dtype: str


def function(name: str) -> Callable[..., Any]:
    """The meta kernel of an operator of the opset; its results are contiguous."""
    operator, schema = operators()[name], schema_of(name)

    def kernel(*arguments: Any, **named: Any) -> Any:
        if not schema.outputs:
            return None
        values = {a.name: v for a, v in zip(schema.arguments, arguments, strict=False)} | named
        seen = {key: _to_meta(value) for key, value in values.items()}
        shapes, kinds = rules.evaluate(operator.shape, seen), rules.evaluate(operator.dtype, seen)
        device = _device(name, values.values())
        if len(schema.outputs) == 1:
            return _empty(shapes, kinds, device)
        return tuple(_empty(shape, kind, device) for shape, kind in zip(shapes, kinds, strict=True))

    return kernel


def _to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Seen(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return [_to_meta(item) for item in value] if isinstance(value, list | tuple) else value


def _device(name: str, values: Iterable[Any]) -> torch.device:
    """The device of all tensors. Calls that mix meta with other devices reach this kernel too."""
    devices = [each.device for each in _tensors(values)]
    for each in devices:
        if each != devices[0]:
            raise RuntimeError(
                f"{name}: tensors on {devices[0]} and on {each}; all tensors must be on one device"
            )
    return devices[0]


def _tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _empty(shape: Any, kind: Any, device: torch.device) -> Any:
    if isinstance(shape, list):
        return [_empty(*pair, device) for pair in zip(shape, kind, strict=True)]
    return torch.empty(shape, dtype=getattr(torch, kind), device=device) if shape is not None else None
