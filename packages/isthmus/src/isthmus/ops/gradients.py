"""Gradient norm in one pass, and clipping by it."""

import math
from collections.abc import Iterable

import torch

from isthmus.ops import cpu
from isthmus.ops.registration import compute_dtype, operator


@operator("grad_norm")
def _grad_norm(grads: list[torch.Tensor], norm_type: float) -> tuple[torch.Tensor, torch.Tensor]:
    wide = torch.float64 if any(each.dtype == torch.float64 for each in grads) else torch.float32
    filled = [each for each in grads if each.numel()]
    norms = iter(torch._foreach_norm(filled, norm_type, dtype=wide) if filled else ())
    each = torch.stack([next(norms) if each.numel() else each.new_zeros((), dtype=wide) for each in grads])
    return torch.linalg.vector_norm(each, norm_type), each


def _refuses(grads: list[torch.Tensor], norm_type: float) -> str:
    if norm_type not in (1, 2, float("inf")):
        return f"no kernel for norms of order {norm_type:g}"
    other = next((each.dtype for each in grads if each.dtype not in cpu.FLOATS), None)
    return "" if other is None else f"no kernel for {other}"


cpu.add(_grad_norm, _refuses)


def grad_norm(grads: Iterable[torch.Tensor], norm_type: float = 2.0) -> torch.Tensor:
    """The norm of all tensors, taken as one vector.

    Args:
        grads: tensors of any shapes and float dtypes, on one device or several.
        norm_type: order; ``float("inf")`` is the largest absolute value.

    Returns:
        0-dim float32 (float64 if any tensor is float64) on the device of the first tensor; a CPU 0 without tensors.
    """
    grads = list(grads)
    if any(hasattr(each, "full_tensor") for each in grads):  # distributed tensors: each rank has a part
        norms = [torch.linalg.vector_norm(each, norm_type, dtype=compute_dtype(each)) for each in grads]
        return torch.linalg.vector_norm(torch.stack([_whole_tensor(each) for each in norms]), norm_type)
    totals = [_grad_norm(each, float(norm_type))[0] for each in by_device(grads)]
    if len(totals) < 2:
        return totals[0] if totals else torch.zeros(())
    return torch.linalg.vector_norm(torch.stack([each.to(totals[0].device) for each in totals]), norm_type)


def _whole_tensor(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def grad_norms(grads: Iterable[torch.Tensor], norm_type: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm of all tensors, and the norm of each.

    Args:
        grads: at least one tensor, all on one device.
        norm_type: order.

    Returns:
        (0-dim, [number of tensors]), float32 (float64 if any tensor is float64).
    """
    total, each = _grad_norm(list(grads), float(norm_type))
    return total, each


def by_device(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The tensors grouped by device, in the order of first appearance.

    Raises:
        RuntimeError: a tensor is sparse.
    """
    found: dict[torch.device, list[torch.Tensor]] = {}
    for each in tensors:
        if each.layout != torch.strided:
            raise RuntimeError(
                "isthmus.ops: the norm of a sparse gradient is not supported; exclude its parameter from clipping"
            )
        found.setdefault(each.device, []).append(each)
    return list(found.values())


def check_finite(norm: torch.Tensor, norm_type: float) -> None:
    """Check that a norm is finite.

    Raises:
        RuntimeError: it is not, as in :func:`torch.nn.utils.clip_grad_norm_`.
    """
    value = norm.item()
    if not math.isfinite(value):
        raise RuntimeError(
            f"the gradient norm of order {norm_type:g} is {value}, so the gradients cannot be clipped; find the "
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
    """:func:`torch.nn.utils.clip_grad_norm_` with the norm computed in one pass.

    Args:
        parameters: their gradients are scaled in place to a total norm of at most ``max_norm``.
        max_norm: limit of the norm.
        norm_type: order of the norm.
        error_if_nonfinite: raise when the norm is NaN or infinite.
        foreach: ignored; gradients are always scaled as a list.

    Returns:
        The norm before clipping, 0-dim.

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
        torch._foreach_mul_(each, factor.to(each[0].device))
    return norm
