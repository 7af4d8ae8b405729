"""Scaling of losses: the gradients of a loss are computed scaled, and unscaled before the optimizer reads them."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from . import optimizers as _optimizers


class LossScaler:
    """Scale of one loss.

    Args:
        loss_scale: "dynamic", or a number that stays.
        min_loss_scale: lower limit of a dynamic scale.
        max_loss_scale: upper limit of a dynamic scale.
        init_scale: first value of a dynamic scale.
        scale_factor: factor by which a dynamic scale changes.
        scale_window: steps without overflow before a dynamic scale rises.
    """

    def __init__(
        self,
        loss_scale: Any,
        min_loss_scale: float | None = None,
        max_loss_scale: float = 2.0**24,
        init_scale: float = 2.0**16,
        scale_factor: float = 2.0,
        scale_window: int = 2000,
    ) -> None:
        self.dynamic = loss_scale == "dynamic"
        self.value = min(max_loss_scale, init_scale) if self.dynamic else float(loss_scale)
        self.unskipped = 0
        self._least, self._most = min_loss_scale or 0.0, max_loss_scale
        self._factor, self._window = scale_factor, scale_window

    def loss_scale(self) -> float:
        """The current scale."""
        return self.value

    def update(self, has_overflow: bool) -> bool:
        """Change a dynamic scale after a backward; returns whether to skip the step."""
        if has_overflow and self.dynamic:
            self.value, self.unskipped = max(self._least, self.value / self._factor), 0
            return True
        self.unskipped += 1
        if self.dynamic and self.unskipped == self._window:
            self.value, self.unskipped = min(self._most, self.value * self._factor), 0
        return False


class State:
    """The state that ``initialize`` has set: None before it.

    Attributes:
        properties: options of the level.
        scalers: one for each loss.
    """

    properties: Any = None
    scalers: tuple[LossScaler, ...] = ()


@contextlib.contextmanager
def scale_loss(
    loss: torch.Tensor,
    optimizers: Any,
    loss_id: int = 0,
    model: Any = None,
    delay_unscale: bool = False,
    delay_overflow_check: bool = False,
) -> Iterator[torch.Tensor]:
    """Give the scaled loss, for its backward; unscale the gradients when the block ends.

    Args:
        loss: the loss.
        optimizers: one, or a list: all whose parameters get gradients from this loss.
        loss_id: number of the scaler, below ``num_losses`` of ``initialize``.
        model: ignored, as in apex.
        delay_unscale: leave the gradients scaled: another backward follows before the step.
        delay_overflow_check: neither skip the step nor change the scale.

    Raises:
        RuntimeError: ``initialize`` was not called.
    """
    options = State.properties
    if options is None:
        raise RuntimeError(
            "amp.scale_loss: call model, optimizer = amp.initialize(model, optimizer) before it"
        )
    if not options.enabled:
        yield loss
        return
    scaler = State.scalers[loss_id]
    each = optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]
    stashes = [_optimizers.stash_of(optimizer) for optimizer in each]
    if not options.master_weights and not scaler.dynamic and scaler.value == 1.0:
        yield loss.float()
        return
    for stash in stashes:
        if not delay_unscale and not stash.has_scaled:
            stash.before_backward()
    yield loss.float() * scaler.value
    for stash in stashes:
        stash.has_scaled = delay_unscale
    if delay_unscale:
        return
    overflows = [stash.after_backward(scaler.value) for stash in stashes]
    if not delay_overflow_check and scaler.update(any(overflows)):
        for stash in stashes:
            stash.skip_next(f"loss scaler {loss_id} reduces the loss scale to {scaler.value}")
