"""Autocast rules of the operators; they follow PyTorch's lists for CUDA."""

from typing import Any

import torch


def _dtype(tensor: torch.Tensor) -> torch.dtype | None:
    """The autocast dtype of the tensor's device; None where autocast is off."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _cast(tensor: Any, dtype: torch.dtype) -> Any:
    floating = (
        isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.dtype != torch.float64
    )
    return tensor.to(dtype) if floating else tensor


def lower(*tensors: Any) -> tuple[Any, ...]:
    """Cast floats (not float64) to the autocast dtype, as for matrix products."""
    dtype = _dtype(tensors[0])
    return tensors if dtype is None else tuple(_cast(each, dtype) for each in tensors)


def widest(*tensors: Any) -> tuple[Any, ...]:
    """Cast floats to the widest dtype among them under autocast, as for sums and norms."""
    if _dtype(tensors[0]) is None:
        return tensors
    kinds = [each.dtype for each in tensors if isinstance(each, torch.Tensor) and each.is_floating_point()]
    top = kinds[0]
    for kind in kinds[1:]:
        top = torch.promote_types(top, kind)
    return tuple(_cast(each, top) for each in tensors)


def single(*tensors: Any) -> tuple[Any, ...]:
    """Cast floats to float32 under autocast."""
    if _dtype(tensors[0]) is None:
        return tensors
    return tuple(_cast(each, torch.float32) for each in tensors)
