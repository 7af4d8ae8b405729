"""Apply a plan to modules: recomputation and activation offload."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from isthmus.chip.checkpointing import checkpoint
from isthmus_diagnostics.plan import offload
from isthmus_diagnostics.plan.choices import WHOLE
from isthmus_diagnostics.plan.files import ACTIONS
from isthmus_diagnostics.plan.layers import Layer, is_recomputable

RECOMPUTE, OFFLOAD = ACTIONS

# Actions of one layer by the name of the module, such as {"mlp": "recompute"}.
Actions = Mapping[str, str]

# Caches of a generating model: no use in training, and a recompute would append to them again.
_CACHES = ("past_key_values", "past_key_value", "layer_past")


def apply(layers: Sequence[Layer], actions: Mapping[str, Actions]) -> Callable[[], None]:
    """Apply actions to layers by their names; return a function that undoes it."""
    undo = []
    for layer in layers:
        for name, action in actions.get(layer.name, {}).items():
            module = layer.module if name == WHOLE else layer.module.get_submodule(name)
            undo.append(_wrap(module, _ACTIONS[action]))

    def undo_all() -> None:
        for each in undo:
            each()

    return undo_all


def recompute_all(layers: Sequence[Layer]) -> dict[str, Actions]:
    """Return the actions that recompute whole layers."""
    return {layer.name: {WHOLE: RECOMPUTE} for layer in layers if is_recomputable(layer.module)}


def _wrap(module: nn.Module, action: Callable[..., Any]) -> Callable[[], None]:
    before = vars(module).get("forward")
    original = module.forward
    # A partial, so that the module can still be copied and pickled.
    module.forward = functools.update_wrapper(functools.partial(action, module, original), original)

    def undo() -> None:
        del module.forward
        if before is not None:
            module.forward = before

    return undo


def _recompute(module: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    kwargs.update({name: None for name in _CACHES if name in kwargs})
    return checkpoint(forward, *args, **kwargs)


def _offload(module: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return offload.run(module, forward, *args, **kwargs)


_ACTIONS = {RECOMPUTE: _recompute, OFFLOAD: _offload}
