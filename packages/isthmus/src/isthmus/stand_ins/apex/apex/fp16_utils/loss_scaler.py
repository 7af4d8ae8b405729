"""Loss scales that the program updates itself."""

from collections.abc import Iterable
from typing import Any

import torch


class LossScaler:
    """A scale that stays.

    Args:
        scale: factor of the loss.
    """

    def __init__(self, scale: float = 1) -> None:
        self.cur_scale: float = scale

    @property
    def loss_scale(self) -> float:
        """The scale."""
        return self.cur_scale

    def has_overflow(self, params: Iterable[torch.Tensor]) -> bool:
        """Always False."""
        return False

    def update_scale(self, overflow: bool) -> None:
        """Keep the scale."""

    def scale_gradient(self, module: Any, grad_in: Any, grad_out: Any) -> tuple[Any, ...]:
        """Scale gradients, as a backward hook of a module."""
        return tuple(self.loss_scale * each for each in grad_in)

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> None:
        """Call the backward of the scaled loss."""
        (loss * self.loss_scale).backward(retain_graph=retain_graph)


class DynamicLossScaler(LossScaler):
    """A scale that is divided at an overflow and multiplied after a number of steps without one.

    Args:
        init_scale: first scale.
        scale_factor: factor of both changes.
        scale_window: steps without overflow before the scale rises.
    """

    def __init__(
        self, init_scale: float = 2**32, scale_factor: float = 2.0, scale_window: int = 1000
    ) -> None:
        super().__init__(init_scale)
        self.scale_factor, self.scale_window = scale_factor, scale_window
        self.cur_iter, self.last_overflow_iter = 0, -1

    def has_overflow(self, params: Iterable[torch.Tensor]) -> bool:
        """Whether the gradient of a parameter is not finite."""
        return any(each.grad is not None and not bool(each.grad.isfinite().all()) for each in params)

    def update_scale(self, overflow: bool) -> None:
        """Change the scale after a step."""
        if overflow:
            self.cur_scale = max(self.cur_scale / self.scale_factor, 1)
            self.last_overflow_iter = self.cur_iter
        elif (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            self.cur_scale *= self.scale_factor
        self.cur_iter += 1
