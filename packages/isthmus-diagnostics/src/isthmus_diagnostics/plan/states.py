"""Optimizer states on the host, except during the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


def offload() -> Callable[[], None]:
    """Move the states of every optimizer to pinned memory after its step and back before it; return the undo.

    Between steps the tensors in ``optimizer.state`` are on the CPU, where a checkpoint can read them.
    """
    handles = [
        register_optimizer_step_pre_hook(lambda optimizer, *_: _move(optimizer, _to_device)),
        register_optimizer_step_post_hook(lambda optimizer, *_: _move(optimizer, _to_host)),
    ]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def size(optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of the states that would be moved."""
    return sum(
        value.nbytes
        for parameter, state in optimizer.state.items()
        for value in state.values()
        if _is_moved(parameter, value)
    )


def _move(optimizer: torch.optim.Optimizer, move: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if _is_moved(parameter, value):
                state[name] = move(parameter, value)
    torch.accelerator.synchronize()


def _is_moved(parameter: Any, value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == parameter.shape and value.ndim > 0


def _to_device(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return value.to(parameter.device, non_blocking=True)


def _to_host(_: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    host = torch.empty_like(value, device="cpu", pin_memory=True)
    return host.copy_(value, non_blocking=True)
