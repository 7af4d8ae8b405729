"""The effect of an operator on memory, from its schema: reads, writes, waits of the host."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._C import _get_dispatch_mode, _TorchDispatchModeKey
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from isthmus_diagnostics.debug.call import tensors_of, written_arguments

# Collectives run on streams of their process group and are ordered by their Work.
_NAMESPACES_LEFT_OUT = frozenset(
    ("c10d", "_c10d_functional", "_c10d_functional_autograd", "prim", "profiler")
)
# These access the description of a tensor, not its bytes.
_DESCRIPTIONS = frozenset(
    """aten::resize_ aten::resize_as_ aten::set_ aten::set_data aten::is_pinned aten::is_same_size aten::is_set_to
    aten::_has_compatible_shallow_copy_type aten::_has_same_storage_numel aten::_version aten::result_type
    aten::_efficientzerotensor aten::_unsafe_view""".split()
)
_TRACING = (_TorchDispatchModeKey.FAKE, _TorchDispatchModeKey.FUNCTIONAL, _TorchDispatchModeKey.PROXY)
_BARE = ("aten::empty", "aten::new_empty", "aten::_empty")
_TRANSFERS = ("aten::copy_", "aten::_to_copy", "aten::_copy_from", "aten::_copy_from_and_resize")


class Effect(NamedTuple):
    """The effect of an overload on memory.

    Attributes:
        name: of the overload.
        arguments: position -> (name, whether written) of every argument that may hold tensors.
        skipped: whether no bytes are accessed.
        reads: whether arguments are read; not by a factory such as ``zeros_like``.
        fills: whether results are written; not by ``empty``.
        transfers: whether it may copy between host and device.
        answers_host: whether the host waits for a result: a number, or a shape that depends on data.
    """

    name: str
    arguments: dict[int, tuple[str, bool]]
    skipped: bool
    reads: bool
    fills: bool
    transfers: bool
    answers_host: bool


@cache
def effect(op: OpOverload) -> Effect:
    """Return the effect of an overload."""
    schema = op._schema
    base = schema.name
    names = written_arguments(op)
    arguments = {
        index: (argument.name, argument.name in names)
        for index, argument in enumerate(schema.arguments)
        if "Tensor" in str(argument.type)
    }
    is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    is_factory = base.endswith("_like") or base.startswith("aten::new_")
    return Effect(
        name=base + (f".{schema.overload_name}" if schema.overload_name else ""),
        arguments=arguments,
        skipped=is_view or base in _DESCRIPTIONS or base.partition("::")[0] in _NAMESPACES_LEFT_OUT,
        reads=not is_factory,
        fills=not base.startswith(_BARE),
        transfers=base in _TRANSFERS,
        answers_host=torch.Tag.data_dependent_output in op.tags or torch.Tag.dynamic_output_shape in op.tags,
    )


def tensors(
    effect: Effect, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Yield name, tensor and whether it is written, for every dense, non-empty tensor argument."""
    declared = op._schema.arguments
    for index, (name, writes) in effect.arguments.items():
        if index < len(args):
            value = args[index]
        elif declared[index].name in kwargs:
            value = kwargs[declared[index].name]
        else:
            continue
        for _, tensor in tensors_of(name, value):
            if _has_bytes(tensor):
                yield name, tensor, writes


def results(returned: Any) -> Iterator[torch.Tensor]:
    """Yield the dense, non-empty tensors among the results."""
    values = returned if isinstance(returned, (tuple, list)) else (returned,)
    for value in values:
        for _, tensor in tensors_of("", value):
            if _has_bytes(tensor):
                yield tensor


def is_plain(kind: type) -> bool:
    """Return whether tensors of a class are dispatched as ``torch.Tensor``; others wrap tensors or have no bytes."""
    return kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]


def is_traced(types: Iterable[type]) -> bool:
    """Return whether an operator with arguments of these classes only computes shapes or a graph."""
    if any(issubclass(kind, (FakeTensor, FunctionalTensor)) for kind in types):
        return True
    return any(_get_dispatch_mode(key) is not None for key in _TRACING)


def _has_bytes(tensor: torch.Tensor) -> bool:
    if not is_plain(type(tensor)):
        return False
    return tensor.layout is torch.strided and not tensor.is_nested and tensor.numel() > 0
