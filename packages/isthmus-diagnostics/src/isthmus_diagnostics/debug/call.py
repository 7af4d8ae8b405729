"""One intercepted call of an operator."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload

# These write their running statistics, which their schemas do not declare.
_SILENT = frozenset(("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"))
_STATISTICS = ("running_mean", "running_var")


class Signature(NamedTuple):
    """The parts of an overload's schema that every call needs; reading the schema itself takes microseconds.

    Attributes:
        arguments: names and defaults, in order.
        written: names of the arguments that it writes.
        out: names of the arguments that it writes without reading.
        returns: names of its results.
        is_view: whether it returns a view of an argument.
    """

    arguments: tuple[tuple[str, Any], ...]
    written: frozenset[str]
    out: frozenset[str]
    returns: tuple[str, ...]
    is_view: bool


@cache
def signature(op: OpOverload) -> Signature:
    """Return the signature of an overload."""
    schema = op._schema
    aliases = [r.alias_info for r in schema.returns if r.alias_info is not None]
    return Signature(
        tuple((a.name, a.default_value) for a in schema.arguments),
        written_arguments(op),
        frozenset(a.name for a in schema.arguments if a.is_out),
        tuple(r.name or f"output {i}" for i, r in enumerate(schema.returns)),
        any(not alias.is_write for alias in aliases),
    )


@dataclass(eq=False)
class Call:
    """One call.

    Attributes:
        name: overload, ``aten::add.Tensor``.
        op: the overload as a callable.
        args: positional arguments of the kernel; a number that PyTorch wrapped in a tensor is a number.
        kwargs: keyword arguments.
    """

    name: str
    op: OpOverload
    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)
    _signature: Signature = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._signature = signature(self.op)

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the schema by name, defaults included."""
        args, kwargs, declared = self.args, self.kwargs, self._signature.arguments
        values = {name: value for (name, _), value in zip(declared, args, strict=False)}
        for name, default in declared[len(args) :]:
            values[name] = kwargs.get(name, default)
        return values

    @property
    def written(self) -> frozenset[str]:
        """Names of the arguments that the operator writes."""
        return self._signature.written

    @property
    def out(self) -> frozenset[str]:
        """Names of the arguments that it writes without reading: those of ``out=`` overloads."""
        return self._signature.out

    def results(self, returned: Any) -> list[tuple[str, torch.Tensor]]:
        """Return the tensors returned, then the written arguments not among them, with names."""
        values = returned if isinstance(returned, (tuple, list)) else (returned,)
        names = self._signature.returns
        found = [
            (name, tensor)
            for name, value in zip(
                names if len(names) == len(values) else [f"output {i}" for i in range(len(values))],
                values,
                strict=True,
            )
            for name, tensor in tensors_of(name, value)
        ]
        if self.written:
            known = {id(tensor) for _, tensor in found}
            for name in self.written_in_order:
                found += [(n, t) for n, t in tensors_of(name, self.arguments[name]) if id(t) not in known]
        return found

    @property
    def written_in_order(self) -> tuple[str, ...]:
        """:attr:`written` in the order of the schema."""
        return tuple(name for name in self.arguments if name in self.written)

    def inputs(self) -> list[tuple[str, torch.Tensor]]:
        """Return the tensors that the call reads, with names; those of lists as ``name[0]``."""
        return [
            pair
            for name, value in self.arguments.items()
            if name not in self.out
            for pair in tensors_of(name, value)
        ]


def written_arguments(op: OpOverload) -> frozenset[str]:
    """Return the names of the arguments that an overload writes."""
    declared = {a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write}
    silent = op._schema.name in _SILENT
    return frozenset(declared | {a.name for a in op._schema.arguments if silent and a.name in _STATISTICS})


def tensors_of(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a tensor, or the tensors of a list, with names."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            if isinstance(item, torch.Tensor):
                yield f"{name}[{index}]", item


def replace_tensors(value: Any, replace: Any) -> Any:
    """Return a value with `replace` applied to every tensor in it, lists included."""
    if isinstance(value, torch.Tensor):
        return replace(value)
    if isinstance(value, (tuple, list)):
        return [replace_tensors(item, replace) for item in value]
    return value


def describe(tensor: torch.Tensor) -> str:
    """Describe a tensor: ``bfloat16[2, 128]``, with strides if it is not contiguous."""
    text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return text if tensor.is_contiguous() else f"{text} strides {list(tensor.stride())}"


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors have the same shape, dtype and bits."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    flat = [t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return torch.equal(*flat)
