"""Additions of amp to an optimizer: float32 master weights, unscaled gradients, skipped steps."""

import functools
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
from torch.optim import Optimizer

from . import functions

_NAME = "_amp_stash"


def stash_of(optimizer: Optimizer) -> "Stash":
    """The stash of an optimizer.

    Raises:
        RuntimeError: the optimizer was not given to ``initialize``.
    """
    found = getattr(optimizer, _NAME, None)
    if found is None:
        raise RuntimeError(f"amp: this {type(optimizer).__name__} was not given to amp.initialize")
    return found


def master_params(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """The parameters that the optimizer updates: float32 masters where O2 has made them."""
    for group in optimizer.param_groups:
        yield from group["params"]


class Stash:
    """State of amp for one optimizer; replaces its ``step`` and ``zero_grad``.

    Attributes:
        has_scaled: whether gradients are still scaled, after a block with ``delay_unscale``.
    """

    def __init__(self, optimizer: Optimizer, master_weights: bool, is_casting: bool) -> None:
        self._optimizer, self._master_weights, self._is_casting = optimizer, master_weights, is_casting
        self._masters: dict[torch.Tensor, torch.Tensor] = {}  # keyed by the float16 parameter of the model
        self._earlier: dict[torch.Tensor, torch.Tensor] = {}  # gradients from before this backward
        self._why_skipped = ""
        self.has_scaled = False
        step, zero_grad = optimizer.step, optimizer.zero_grad
        new_step = functools.wraps(step)(lambda _, closure=None: self._step(step, closure))
        optimizer.step = MethodType(new_step, optimizer)  # type: ignore[method-assign] # schedulers need a method
        optimizer.zero_grad = functools.partial(self._zero_grad, zero_grad)  # type: ignore[method-assign]
        setattr(optimizer, _NAME, self)

    def _make_masters(self) -> None:
        """Give the optimizer float32 copies of float16 parameters, at the first use: checkpoints may load before."""
        if not self._master_weights:
            return
        for group in self._optimizer.param_groups:
            for index, param in enumerate(group["params"]):
                if param.dtype == torch.float16 and param.requires_grad:
                    group["params"][index] = self._masters[param] = self._master(param)

    def _master(self, param: torch.Tensor) -> torch.Tensor:
        master = param.detach().float().requires_grad_()
        if param in self._optimizer.state:
            state = self._optimizer.state.pop(param)
            self._optimizer.state[master] = functions.applied(functions.to_type(torch.float32), state)
        return master

    def _direct(self) -> list[torch.Tensor]:
        """Parameters that are the model's own."""
        masters = {id(each) for each in self._masters.values()}
        return [each for each in master_params(self._optimizer) if id(each) not in masters]

    def before_backward(self) -> None:
        """Put aside the gradients that are already unscaled."""
        self._make_masters()
        self._earlier = {each: each.grad for each in self._direct() if each.grad is not None}
        for param in (*self._earlier, *self._masters):
            param.grad = None

    def after_backward(self, scale: float) -> bool:
        """Unscale the gradients and add those put aside; returns whether one is not finite."""
        checks = []
        with torch.no_grad():
            for param in self._direct():
                if param.grad is not None:
                    checks.append(_unscaled(param.grad, scale, param, self._earlier.pop(param, None)))
            for param, master in self._masters.items():
                if param.grad is not None:
                    checks.append(_unscaled(param.grad, scale, master, master.grad))
        for param, gradient in self._earlier.items():  # parameters that this loss does not reach
            param.grad = gradient
        self._earlier = {}
        return bool(checks) and not bool(torch.stack(checks).all())

    def skip_next(self, why: str) -> None:
        """Let the next step do nothing."""
        self._why_skipped = why

    def _step(self, step: Callable[..., Any], closure: Any = None) -> Any:
        if closure is not None:
            raise RuntimeError("amp: optimizer.step takes no closure; compute the loss before the step")
        if self._why_skipped:
            print(f"Gradient overflow.  Skipping step, {self._why_skipped}")
            self._why_skipped = ""
            for master in self._masters.values():  # model.zero_grad() does not reach these
                master.grad = None
            return None
        self._make_masters()
        if self._is_casting:
            with functions.disable_casts():
                result = step()
        else:
            result = step()
        with torch.no_grad():
            for param, master in self._masters.items():
                param.copy_(master)
        return result

    def _zero_grad(self, zero_grad: Callable[..., None], set_to_none: bool = True) -> None:
        zero_grad(set_to_none)
        for param in self._masters:
            if param.grad is not None:
                param.grad = None if set_to_none else param.grad.zero_()


def _unscaled(gradient: torch.Tensor, scale: float, param: torch.Tensor, earlier: Any) -> torch.Tensor:
    """Set ``param.grad`` to the gradient over the scale plus an earlier one; returns whether it is finite."""
    fresh = gradient.to(param.dtype) / scale
    param.grad = fresh if earlier is None else earlier + fresh
    return (fresh.coalesce().values() if fresh.is_sparse else fresh).isfinite().all()
