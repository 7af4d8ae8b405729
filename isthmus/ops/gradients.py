"""The norm of all gradients in one pass, and clipping by it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from isthmus.ops import cpu
from isthmus.ops.operators import operator


@operator("grad_norm")
def _grad_norm(grads: list[torch.Tensor], norm_type: float) -> tuple[torch.Tensor, torch.Tensor]:
    wide = torch.float64 if any(each.dtype == torch.float64 for each in grads) else torch.float32
    norms = [
        torch.linalg.vector_norm(each, norm_type, dtype=wide)
        if each.numel()
        else each.new_zeros((), dtype=wide)
        for each in grads
    ]
    each = torch.stack(norms)
    return torch.linalg.vector_norm(each, norm_type), each


def _refuses(grads: list[torch.Tensor], norm_type: float) -> str:
    if norm_type not in (1, 2, float("inf")):
        return f"no kernel for norms of order {norm_type:g}"
    other = next((each.dtype for each in grads if each.dtype not in cpu.FLOATS), None)
    return "" if other is None else f"no kernel for {other}"


cpu.add(_grad_norm, _refuses)


def grad_norm(grads: Iterable[torch.Tensor], norm_type: float = 2.0) -> torch.Tensor:
    """The norm of all tensors as if they were one vector, by one pass over them.

    Args:
        grads: tensors of any shapes and float dtypes, on one device or several.
        norm_type: order; ``float("inf")`` is the largest absolute value.

    Returns:
        0-dim float32 (float64 if a tensor is) on the device of the first tensor; 0 on the CPU without tensors.
    """
    grads = list(grads)
    if any(hasattr(each, "full_tensor") for each in grads):  # distributed tensors, whose ranks have parts
        norms = [torch.linalg.vector_norm(each, norm_type, dtype=_wide(each)) for each in grads]
        return torch.linalg.vector_norm(torch.stack([_whole(each) for each in norms]), norm_type)
    totals = [_grad_norm(each, float(norm_type))[0] for each in by_device(grads)]
    if len(totals) < 2:
        return totals[0] if totals else torch.zeros(())
    return torch.linalg.vector_norm(torch.stack([each.to(totals[0].device) for each in totals]), norm_type)


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def grad_norms(grads: Iterable[torch.Tensor], norm_type: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm of all tensors, and that of each.

    Args:
        grads: tensors of one device; at least one.
        norm_type: order.

    Returns:
        (0-dim, [number of tensors]), float32 (float64 if a tensor is).
    """
    total, each = _grad_norm(list(grads), float(norm_type))
    return total, each


def by_device(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The tensors in one list for each device, in the order in which the devices come first.

    Raises:
        RuntimeError: one is sparse.
    """
    found: dict[torch.device, list[torch.Tensor]] = {}
    for each in tensors:
        if each.layout != torch.strided:
            raise RuntimeError(
                "isthmus.ops: the norm of a sparse gradient is not served; leave its parameter out of the clipping"
            )
        found.setdefault(each.device, []).append(each)
    return list(found.values())


def check_finite(norm: torch.Tensor, norm_type: float) -> None:
    """Refuse a norm that is not finite.

    Raises:
        RuntimeError: as :func:`torch.nn.utils.clip_grad_norm_` has it.
    """
    value = norm.item()
    if not math.isfinite(value):
        raise RuntimeError(
            f"the gradients' norm of order {norm_type:g} is {value}, so they cannot be clipped by it; find the "
            "parameter with grad_norms(), or set error_if_nonfinite=False"
        )


@torch.no_grad()
def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """:func:`torch.nn.utils.clip_grad_norm_` with the norm of all gradients taken in one pass.

    Args:
        parameters: whose gradients are scaled in place, as one vector, to a norm of ``max_norm`` at most.
        max_norm: limit.
        norm_type: order of the norm.
        error_if_nonfinite: raise when the norm is NaN or infinite.
        foreach: for the signature of PyTorch; the scaling is always by list.

    Returns:
        The norm before it, 0-dim.

    Raises:
        RuntimeError: the norm is not finite and ``error_if_nonfinite``.
    """
    given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    grads = [each.grad for each in given if each.grad is not None]
    norm = grad_norm(grads, norm_type)
    if error_if_nonfinite:
        check_finite(norm, norm_type)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for each in by_device(grads):
        torch._foreach_mul_(each, _on(each[0], factor))
    return norm


def _on(tensor: torch.Tensor, factor: torch.Tensor) -> Any:
    return factor.to(tensor.device)
