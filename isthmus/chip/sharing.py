"""Sending tensors of the chip to another process (``torch.multiprocessing``): by copy, through shared host memory.

PyTorch would hand over the storage, which it can do for CPU and CUDA alone; a queue's feeder thread then fails and
the reader waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

from isthmus.patches import Scope

_scope = Scope("chip")


def install() -> None:
    """Put our reducers in front of PyTorch's, for tensors and parameters."""
    if _scope.patches:
        return
    reducers: dict[type, Callable[..., Any]] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind in (torch.Tensor, torch.nn.Parameter):
        former = reducers[kind]
        reducers[kind] = _reduce
        _scope.record(
            f"multiprocessing.reduction.ForkingPickler of {kind.__name__}",
            "tensors of the chip are sent to other processes by copy",
            lambda kind=kind, former=former: reducers.__setitem__(kind, former),  # type: ignore[misc]
        )


def uninstall() -> None:
    """Give PyTorch's reducers back their place."""
    _scope.undo()


def _reduce(tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    if tensor.device.type != "chip" or (tensor.requires_grad and not tensor.is_leaf):
        return reduce_tensor(tensor)
    return _rebuild, (tensor.detach().cpu(), tensor.device, type(tensor), tensor.requires_grad)


def _rebuild(
    copy: torch.Tensor, device: torch.device, kind: type[torch.Tensor], requires_grad: bool
) -> torch.Tensor:
    tensor = copy.to(device)
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)
