"""PyTorch's non-reentrant checkpoint, with every generator restored."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function and recompute it in the backward instead of keeping its activations.

    The recompute sees the same random numbers, Megatron's included.
    """
    from torch.utils.checkpoint import checkpoint as torch_checkpoint

    # PyTorch restores only the generators of the devices of positional arguments.
    def positional(*values: Any) -> Any:
        return function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

    return torch_checkpoint(positional, *args, *kwargs.values(), use_reentrant=False, context_fn=_contexts)


def _contexts() -> tuple[Any, Any]:
    """Contexts of the forward and of the recompute, which restores Megatron's RNG states."""
    megatron = sys.modules.get("megatron.core.tensor_parallel")
    if megatron is None:
        return contextlib.nullcontext(), contextlib.nullcontext()
    tracker = megatron.get_cuda_rng_tracker()
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
