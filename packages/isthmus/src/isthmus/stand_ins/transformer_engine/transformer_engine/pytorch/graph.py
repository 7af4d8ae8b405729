"""Graphs of layers, forward and backward pass, as ``transformer_engine.pytorch.graph`` of Transformer Engine.

Megatron captures its layers by them with ``--cuda-graph-impl transformer_engine``.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from isthmus.chip.graphs import GraphedCall, PoolHandle, graph_pool_handle

from ..common.recipe import refuse_fp8
from .distributed import get_all_rng_states

_capturing = False


def set_capture_start() -> None:
    """Note that graphs of layers are captured from now on."""
    global _capturing
    _capturing = True


def set_capture_end() -> None:
    """Note that no graphs of layers are captured any more."""
    global _capturing
    _capturing = False


def is_graph_capturing() -> bool:
    """Whether graphs of layers are captured."""
    return _capturing


def save_fp8_tensors(*_: Any) -> None:
    """Not supported.

    Raises:
        ValueError: always.
    """
    refuse_fp8("--fp8-format")


def restore_fp8_tensors(*_: Any) -> None:
    """Not supported.

    Raises:
        ValueError: always.
    """
    refuse_fp8("--fp8-format")


def make_graphed_callables(
    modules: nn.Module | tuple[nn.Module, ...],
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    sample_kwargs: Any = None,
    fp8_enabled: bool = False,
    _order: Sequence[int] | None = None,
    pool: PoolHandle | None = None,
    retain_graph_in_backward: bool = False,
) -> Any:
    """Layers whose forward and backward passes are replays of graphs.

    Args:
        modules: a layer, or layers in the order in which they run; with ``_order`` those of all model chunks.
        sample_args: arguments of the layer, or of each call of a layer: tensors with the shapes of later calls. With
            ``_order`` by model chunk, then by micro-batch, then by layer.
        num_warmup_iters: runs of each call before its capture.
        allow_unused_input: whether inputs may have no gradient.
        sample_kwargs: keyword arguments, like ``sample_args``.
        fp8_enabled: must be False.
        _order: the passes of model chunks in the order in which they run: number of the chunk from 1, negative for a
            backward pass.
        pool: memory shared with other graphs.
        retain_graph_in_backward: whether autograd graphs remain after the capture of backward passes.

    Returns:
        The layer or layers, changed in place; with ``_order`` a function for each call.

    Raises:
        ValueError: FP8 is enabled.
        RuntimeError: a capture failed.
        AssertionError: an argument that is no tensor, or a layer with hooks.
    """
    if fp8_enabled:
        refuse_fp8("--fp8-format")
    layers = modules if isinstance(modules, tuple) else (modules,)
    args = sample_args if isinstance(modules, tuple) else (sample_args,)
    kwargs = sample_kwargs or [{}] * len(args)
    kwargs = kwargs if isinstance(kwargs, list | tuple) else (kwargs,)
    order = list(_order) if _order else [1, -1]
    steps = _steps(order, len(layers), len(args))
    layer_of = {call: layer for _, call, layer in steps}
    calls = [
        GraphedCall(layers[layer_of[i]], args[i], kwargs[i], allow_unused_input, retain_graph_in_backward)
        for i in range(len(args))
    ]
    with _capture(), _random_states():
        _run(calls, steps, num_warmup_iters, graph_pool_handle() if pool is None else pool)
    if _order is not None:
        return tuple(call.forward() for call in calls)
    for layer, call in zip(layers, calls, strict=True):
        layer.forward = call.forward()
    return modules


def _steps(order: Sequence[int], layers: int, calls: int) -> list[tuple[bool, int, int]]:
    """Whether forward, number of the call, and number of the layer, in the order of the run."""
    chunks = max(order)
    batches, own = len(order) // chunks // 2, layers // chunks  # micro-batches, layers of a chunk
    if chunks * batches * 2 != len(order) or own * chunks * batches != calls:
        raise ValueError(
            f"make_graphed_callables: {calls} sample_args do not fit {layers} layers in the order {order}"
        )
    found, done = [], dict.fromkeys(order, 0)
    for each in order:
        chunk, batch = abs(each) - 1, done[each]
        done[each] += 1
        numbers = range(own) if each > 0 else reversed(range(own))
        found += [(each > 0, (chunk * batches + batch) * own + i, chunk * own + i) for i in numbers]
    return found


def _run(
    calls: list[GraphedCall], steps: list[tuple[bool, int, int]], warm_ups: int, pool: PoolHandle
) -> None:
    """Warm up, then capture in the order of the run, because the graphs share memory."""
    for call in calls:
        call.check()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for is_forward, number, _ in steps:
            if is_forward:
                calls[number].warm_up(warm_ups)
                _expect_first_batch(calls[number].function)
    torch.cuda.synchronize()
    for is_forward, number, _ in steps:
        call = calls[number]
        (call.capture_forward if is_forward else call.capture_backward)(pool)


def _expect_first_batch(layer: Callable[..., Any]) -> None:
    """Undo what a warm-up changed in Megatron's layers."""
    modules: Iterable[Any] = layer.modules() if isinstance(layer, nn.Module) else ()
    for module in modules:
        if hasattr(module, "is_first_microbatch"):
            module.is_first_microbatch = True


@contextlib.contextmanager
def _capture() -> Iterator[None]:
    set_capture_start()
    try:
        yield
    finally:
        set_capture_end()


@contextlib.contextmanager
def _random_states() -> Iterator[None]:
    """Restore the random states that warm-ups advance."""
    default = torch.cuda.default_generators[torch.cuda.current_device()]
    generators = [
        default,
        *(each for each in get_all_rng_states().values() if isinstance(each, torch.Generator)),
    ]
    states = [each.get_state() for each in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
