"""The decompositions of eager calls, for tracing: operators without a kernel become those that have one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp.decompositions import upsample_compute_output_size
from torch._ops import OpOverload

from isthmus import _C
from isthmus.chip._utils import overload
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
        operator = overload(name)
        if operator and routes.get(name, ("",))[0] == "decomposition" and _is_traceable(operator):
            found[operator] = function
    return found


@functools.cache
def trace_kernels() -> None:
    """Trace interpolation as the operator that eager calls take, where a library has its kernel; once.

    PyTorch has Python formulas for tracing, which round otherwise.
    """
    key = torch._C.DispatchKey.AutogradPrivateUse1
    routes = _C.routes()
    for name in dir(torch.ops.aten):
        if not name.startswith("upsample_") or routes.get(f"aten::{name}", ("",))[0] != "kernel":
            continue
        packet = getattr(torch.ops.aten, name)
        packet.default.py_impl(key)(functools.partial(packet.default._op_dk, key))
        packet.vec.py_impl(key)(functools.partial(_interpolate, packet.default))


def _interpolate(
    operator: OpOverload, input: torch.Tensor, output_size: Any, *options: Any, **others: Any
) -> torch.Tensor:
    """The overload ``vec`` by the one that takes sizes: its last argument holds the scales."""
    *given, scales = (*options, *others.values())
    sizes = upsample_compute_output_size(input.size(), output_size, scales)
    found: torch.Tensor = operator(input, sizes, *given, *(scales or [None] * len(sizes)))
    return found


def _is_traceable(operator: OpOverload) -> bool:
    """Whether eager calls take the Python function and a graph can hold its operators."""
    key = torch._C.DispatchKey
    composite = (key.CompositeExplicitAutograd, key.CompositeImplicitAutograd)
    return (
        not operator._schema.is_mutable
        and not any(tag in operator.tags for tag in _VALUE_DEPENDENT)
        and not any(operator.has_kernel_for_dispatch_key(each) for each in composite)
    )
