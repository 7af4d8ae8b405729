"""Random states by name, and checkpointed activations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch


class CudaRNGStatesTracker:
    """Random states of the accelerator by name, one of which is in force inside :meth:`fork`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every state."""
        self.states_: dict[str, torch.Tensor] = {}
        self.seeds_: set[int] = set()

    def get_states(self) -> dict[str, torch.Tensor]:
        """The states by name."""
        return dict(self.states_)

    def set_states(self, states: dict[str, torch.Tensor]) -> None:
        """Take states over from :meth:`get_states`."""
        self.states_ = dict(states)

    def add(self, name: str, seed: int) -> None:
        """Enter a state that begins with a seed.

        Raises:
            RuntimeError: the name or the seed is taken.
        """
        if seed in self.seeds_:
            raise RuntimeError(f"the random seed {seed} is taken")
        if name in self.states_:
            raise RuntimeError(f"the random state {name!r} exists")
        self.seeds_.add(seed)
        before = torch.cuda.get_rng_state()
        torch.cuda.manual_seed(seed)
        self.states_[name] = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(before)

    @contextlib.contextmanager
    def fork(self, name: str = "model-parallel-rng") -> Iterator[None]:
        """Draw from a named state.

        Raises:
            KeyError: there is no such state.
        """
        before = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(self.states_[name])
        try:
            yield
        finally:
            self.states_[name] = torch.cuda.get_rng_state()
            torch.cuda.set_rng_state(before)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    distribute_saved_activations: bool = False,
    get_rng_state_tracker: Any = None,
    tp_group: Any = None,
    **kwargs: Any,
) -> Any:
    """Compute ``function(*args, **kwargs)`` and again in the backward pass, by Megatron's own checkpoint."""
    from megatron.core import tensor_parallel

    del get_rng_state_tracker, tp_group  # Megatron's knows them
    return tensor_parallel.checkpoint(
        lambda *tensors: function(*tensors, **kwargs), distribute_saved_activations, *args
    )


@contextlib.contextmanager
def activation_recompute_forward(*_: Any, **__: Any) -> Iterator[None]:
    """Only FP8 has something to keep for the recompute."""
    yield
