"""Fewer collectives in recomputed layers: ``--optimize-recomp-communication-level``.

Recomputing a tensor-parallel layer repeats its two all-reduces (reduce-scatters under sequence parallelism), though
what the last operators of a checkpoint give is needed by no gradient. PyTorch's non-reentrant checkpoint stops as
soon as it has recomputed all that was saved. So level 1, which takes it in place of Megatron's own, repeats one
all-reduce per layer; level 2, in which the attention and the rest of a layer are a checkpoint each and one more
activation is kept, repeats none. With dropout the part before the dropout's mask is repeated as well: the numbers
are the same at every level.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.checkpoint import checkpoint as torch_checkpoint

LEVELS = (0, 1, 2)
OPTION = "--optimize-recomp-communication-level"

_level = 0
# Whether a block of layers runs whose layers are to be checkpointed by halves.
_by_halves = False


def set_level(level: int) -> None:
    """Choose for the checkpoints of this process that begin from now on.

    Raises:
        ValueError: there is no such level.
    """
    global _level
    if level not in LEVELS:
        raise ValueError(f"{OPTION} {level}: give {', '.join(map(str, LEVELS))}")
    _level = level


def level() -> int:
    """What :func:`set_level` chose; 0 is Megatron's own way."""
    return _level


def stops_early(original: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor_parallel.checkpoint``: PyTorch's non-reentrant one at the levels above 0."""

    @functools.wraps(original)
    def checkpoint(function: Callable[..., Any], distribute_saved_activations: bool, *args: Any) -> Any:
        if not _level or distribute_saved_activations:
            return original(function, distribute_saved_activations, *args)
        if _level == 2 and "_checkpointed_forward" in function.__qualname__:  # layers of a TransformerBlock
            with _halves():
                return function(*args)
        return _checkpoint(function, *args)

    return checkpoint


def halved(original: Callable[..., Any]) -> Callable[..., Any]:
    """``TransformerLayer.forward``: at level 2 attention and the rest are a checkpoint each."""

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _by_halves:
            return original(self, *args, **kwargs)
        own = {name: getattr(self, name) for name in ("_forward_attention", "_forward_mlp")}
        try:
            for name, half in own.items():
                vars(self)[name] = functools.partial(_checkpoint, half)
            return original(self, *args, **kwargs)
        finally:
            for name in own:
                vars(self).pop(name)

    return forward


@contextlib.contextmanager
def _halves() -> Iterator[None]:
    global _by_halves
    before, _by_halves = _by_halves, True
    try:
        yield
    finally:
        _by_halves = before


def _checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # PyTorch restores the generators of the devices of the positional arguments only.
    def positional(*values: Any) -> Any:
        return function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

    values = (*args, *kwargs.values())
    return torch_checkpoint(positional, *values, use_reentrant=False, context_fn=_tracker_states)


def _tracker_states() -> tuple[Any, Any]:
    """Contexts of the forward and of its repetition, which finds Megatron's generators as the forward found them."""
    from megatron.core.tensor_parallel import get_cuda_rng_tracker

    tracker = get_cuda_rng_tracker()
    states = tracker.get_states()

    @contextlib.contextmanager
    def again() -> Iterator[None]:
        now = tracker.get_states()
        tracker.set_states(states)
        try:
            yield
        finally:
            tracker.set_states(now)

    return contextlib.nullcontext(), again()
