"""Patches of AOTAutograd: graphs of chip tensors get the operators that they would get on the CPU.

The CPU's compiler gets the graph. Dispatch under tracing: some composites are kernels of the chip's, so that eager
calls round as CPU's do; traced, they are decomposed as CPU's are. Inductor's decompositions choose by the
name of the device.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._decomp.decompositions import pw_cast_for_opmath
from torch._ops import OpOverload, resolve_key
from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

from isthmus.chip._utils import overload

_KEYS = (
    (DispatchKey.AutogradPrivateUse1, DispatchKey.AutogradCPU),
    (DispatchKey.PrivateUse1, DispatchKey.CPU),
)
_aten = torch.ops.aten


@functools.cache
def trace_composites_as_cpu() -> None:
    """Give Python's dispatcher, which only tracing uses, CPU's composites where the chip has a kernel; once."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    for chip_key, cpu_key in _KEYS:
        for name in set(registered(chip_key.name)) - set(registered(cpu_key.name)):
            operator = overload(name)
            function = operator and _composite(operator, cpu_key)
            if operator and function and chip_key not in operator.py_kernels:
                operator.py_impl(chip_key)(function)


def _composite(operator: OpOverload, key: DispatchKey) -> Callable[..., Any] | None:
    try:
        resolved = resolve_key(operator, key)
    except (NotImplementedError, RuntimeError):
        return None
    if resolved != DispatchKey.CompositeImplicitAutograd:
        return None
    return operator.py_kernels.get(resolved) or functools.partial(operator._op_dk, resolved)


def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Inductor's decompositions, with CPU's rules for matrix products where they differ by device."""
    from torch._inductor.decomposition import select_decomp_table

    table = dict(select_decomp_table())
    for operator, rule in ((_aten.mm.default, _mm), (_aten.bmm.default, _bmm), (_aten.addmm.default, _addmm)):
        table[operator] = _on_chip(rule, table[operator])
    return table


def _on_chip(rule: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        return (original if args[0].device.type == "cpu" else cast)(*args, **kwargs)

    cast = pw_cast_for_opmath(rule)
    return decompose


def _dot(a: Tensor, b: Tensor, dim: int) -> Tensor:
    """Row times column: sum of products along dim, as a matrix of one element."""
    return torch.sum(a.squeeze(dim) * b.squeeze(-1), dim=dim, keepdim=True).unsqueeze(dim)


def _is_number(size: Any, number: int) -> bool:
    return statically_known_true(size == number)


def _mm(a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    if _is_number(a.size(0), 1) and _is_number(b.size(1), 1):
        return _dot(a, b, 0)
    outer = _is_number(a.size(1), 1) and not _is_number(a.size(0), 1) and not _is_number(b.size(1), 1)
    if outer and a.dtype is b.dtype and guard_or_false(a.numel() + b.numel() <= 32):
        return a * b
    return NotImplemented


def _bmm(a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    if _is_number(a.size(2), 1) and _is_number(b.size(1), 1):
        return (a * b).contiguous()
    if _is_number(a.size(1), 1) and _is_number(b.size(2), 1):
        return _dot(a, b, 1)
    return NotImplemented


def _addmm(
    bias: Tensor,
    a: Tensor,
    b: Tensor,
    out_dtype: torch.dtype | None = None,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor:
    if not _is_number(a.size(0), 1):
        return NotImplemented
    if _is_number(b.size(1), 1):
        return alpha * _dot(a, b, 0) + beta * bias
    if guard_or_false(b.size(0) <= 16) and guard_or_false(b.size(1) <= 16):
        return alpha * (a.T * b).sum(dim=0, keepdim=True) + beta * bias
    return NotImplemented
