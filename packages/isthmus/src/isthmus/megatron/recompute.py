"""Fewer collectives in recomputed layers: ``--optimize-recomp-communication-level``.

Recomputing a tensor-parallel layer repeats its two all-reduces (reduce-scatters under sequence parallelism), although
no gradient needs the results of the last operators. PyTorch's non-reentrant checkpoint stops once all saved tensors
are recomputed. Level 1 uses it instead of Megatron's and repeats one all-reduce per layer. Level 2 checkpoints
attention and MLP separately, stores one more activation, and repeats none. With dropout, the part before the dropout
mask is repeated too. Results are the same at every level.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from isthmus.chip.checkpointing import checkpoint as torch_checkpoint

LEVELS = (0, 1, 2)
OPTION = "--optimize-recomp-communication-level"

_level = 0
# Whether the layers of the running block are checkpointed in halves.
_by_halves = False


def set_level(level: int) -> None:
    """Set the level for later checkpoints of this process.

    Raises:
        ValueError: unknown level.
    """
    global _level
    if level not in LEVELS:
        raise ValueError(f"{OPTION} {level}: expected one of {', '.join(map(str, LEVELS))}")
    _level = level


def level() -> int:
    """The current level; 0 is Megatron's own checkpoint."""
    return _level


def checkpoint_stopping_early(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replacement for ``tensor_parallel.checkpoint``: PyTorch's non-reentrant one at levels above 0."""

    @functools.wraps(original)
    def checkpoint(function: Callable[..., Any], distribute_saved_activations: bool, *args: Any) -> Any:
        if not _level or distribute_saved_activations:
            return original(function, distribute_saved_activations, *args)
        if _level == 2 and "_checkpointed_forward" in function.__qualname__:  # layers of a TransformerBlock
            with _halves():
                return function(*args)
        return torch_checkpoint(function, *args)

    return checkpoint


def checkpoint_in_halves(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replacement for ``TransformerLayer.forward``: at level 2, checkpoints attention and MLP separately."""

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _by_halves:
            return original(self, *args, **kwargs)
        own = {name: getattr(self, name) for name in ("_forward_attention", "_forward_mlp")}
        try:
            for name, half in own.items():
                vars(self)[name] = functools.partial(torch_checkpoint, half)
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
