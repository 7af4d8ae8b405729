"""The decompositions of eager calls, for tracing: operators without a kernel become those that have one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from isthmus import _C
from isthmus.chip.registration import python_decompositions

_VALUE_DEPENDENT = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


@functools.cache
def table() -> dict[OpOverload, Callable[..., Any]]:
    """Operator -> the function by which an eager call is decomposed, for those that no library has a kernel for.

    Operators that write to an argument are not in graphs, and results of operators whose shape depends on values
    are computed by the host.
    """
    routes = _C.routes()
    found = {}
    for name, function in python_decompositions().items():
        operator = _overload(name)
        if routes.get(name, ("",))[0] == "decomposition" and _traceable(operator):
            found[operator] = function
    return found


def _overload(name: str) -> OpOverload:
    base, _, overload = name.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, base)
    operator: OpOverload = getattr(packet, overload or "default")
    return operator


def _traceable(operator: OpOverload) -> bool:
    """Whether eager calls take the Python function and a graph can hold its operators."""
    key = torch._C.DispatchKey
    composite = (key.CompositeExplicitAutograd, key.CompositeImplicitAutograd)
    return (
        not operator._schema.is_mutable
        and not any(tag in operator.tags for tag in _VALUE_DEPENDENT)
        and not any(operator.has_kernel_for_dispatch_key(each) for each in composite)
    )
