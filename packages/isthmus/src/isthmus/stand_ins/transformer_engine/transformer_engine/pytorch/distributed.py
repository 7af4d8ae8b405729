"""RNG states by name, and activation checkpointing."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

# A generator that shares its state where graphs exist, else the state's bytes.
State = torch.Generator | torch.Tensor

# The states of the tracker that changed last; graphs register them.
_states: dict[str, State] = {}


def get_all_rng_states() -> dict[str, State]:
    """States by name of the tracker that changed last."""
    return _states


@functools.cache
def graph_safe_rng_available() -> bool:
    """Whether generators share their states, so that graphs advance them."""
    try:
        _generator().graphsafe_get_state()
    except RuntimeError:  # NotImplementedError is one
        return False
    return True


def _generator() -> torch.Generator:
    return torch.cuda.default_generators[torch.cuda.current_device()]


def _get() -> State:
    return _generator().graphsafe_get_state() if graph_safe_rng_available() else torch.cuda.get_rng_state()


def _set(state: State) -> None:
    if isinstance(state, torch.Generator):
        _generator().graphsafe_set_state(state)
    else:
        torch.cuda.set_rng_state(state)


class CudaRNGStatesTracker:
    """Named RNG states of the accelerator; :meth:`fork` activates one."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Delete all states."""
        self.states_: dict[str, State] = {}
        self.seeds_: set[int] = set()

    def get_states(self) -> dict[str, State]:
        """The states by name."""
        return dict(self.states_)

    def set_states(self, states: dict[str, State]) -> None:
        """Restore states of :meth:`get_states`."""
        self.states_ = dict(states)
        self._publish()

    def _publish(self) -> None:
        global _states
        _states = self.states_

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
        if graph_safe_rng_available():
            self.states_[name] = _generator().clone_state().manual_seed(seed)
        else:
            before = torch.cuda.get_rng_state()
            torch.cuda.manual_seed(seed)
            self.states_[name] = torch.cuda.get_rng_state()
            torch.cuda.set_rng_state(before)
        self._publish()

    @contextlib.contextmanager
    def fork(self, name: str = "model-parallel-rng") -> Iterator[None]:
        """Context manager that uses a named state.

        Raises:
            KeyError: unknown state.
        """
        before = _get()
        _set(self.states_[name])
        try:
            yield
        finally:
            self.states_[name] = _get()
            _set(before)


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


def is_fp8_activation_recompute_enabled() -> bool:
    """False: FP8 is not supported."""
    return False
