"""RNG states by name, and activation checkpointing."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch


class CudaRNGStatesTracker:
    """Named RNG states of the accelerator; :meth:`fork` activates one."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Delete all states."""
        self.states_: dict[str, torch.Tensor] = {}
        self.seeds_: set[int] = set()

    def get_states(self) -> dict[str, torch.Tensor]:
        """The states by name."""
        return dict(self.states_)

    def set_states(self, states: dict[str, torch.Tensor]) -> None:
        """Restore states of :meth:`get_states`."""
        self.states_ = dict(states)

    def add(self, name: str, seed: int) -> None:
        """Add a state with a seed.

        Raises:
            RuntimeError: the name or the seed is already in use.
        """
        if seed in self.seeds_:
            raise RuntimeError(f"the RNG seed {seed} is already in use")
        if name in self.states_:
            raise RuntimeError(f"the RNG state {name!r} already exists")
        self.seeds_.add(seed)
        before = torch.cuda.get_rng_state()
        torch.cuda.manual_seed(seed)
        self.states_[name] = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(before)

    @contextlib.contextmanager
    def fork(self, name: str = "model-parallel-rng") -> Iterator[None]:
        """Context manager that uses a named state.

        Raises:
            KeyError: unknown state.
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
    """Checkpoint ``function(*args, **kwargs)`` by Megatron's own checkpoint."""
    from megatron.core import tensor_parallel

    del get_rng_state_tracker, tp_group  # Megatron's checkpoint has its own
    return tensor_parallel.checkpoint(
        lambda *tensors: function(*tensors, **kwargs), distribute_saved_activations, *args
    )


@contextlib.contextmanager
def activation_recompute_forward(*_: Any, **__: Any) -> Iterator[None]:
    """No-op: only FP8 has state for the recompute."""
    yield
