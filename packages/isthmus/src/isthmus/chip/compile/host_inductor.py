"""Inductor for a chip whose memory the CPU addresses: the graph is traced on the chip, compiled for the CPU, and run
over CPU aliases of the chip's tensors. Importing this imports Inductor.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch.fx import GraphModule

from isthmus import _C, chip
from isthmus.chip.compile import flex_attention, host_call, rewrite, tracing

_logger = logging.getLogger("isthmus")


def compile_graph(
    model: GraphModule, inputs: list[Any], *, config_patches: dict[str, Any] | None, region: str | None
) -> Callable[..., Any]:
    """Return the result of Inductor's ``compile_fx`` for a graph that has tensors on the chip.

    Args:
        model: as Dynamo hands it to a backend.
        inputs: example inputs.
        config_patches: Inductor's options for this graph.
        region: name of the compiled region.
    """
    tracing.trace_composites_as_cpu()
    flex_attention.choose(model, torch.is_grad_enabled() and _requires_grad(inputs))
    with inductor_config.patch(config_patches or {}):
        decompositions = tracing.decompositions()
    # The saved result of AOTAutograd would be Inductor's code for the CPU without the call that aliases.
    with functorch_config.patch(enable_autograd_cache=False):
        compiled: Any = compile_fx(
            model,
            inputs,
            inner_compile=compile_inner,
            config_patches=config_patches,
            decompositions=decompositions,
            compile_region_name=region,
        )
    return cast(Callable[..., Any], compiled)


def _requires_grad(inputs: Sequence[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in inputs)


def compile_inner(graph: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
    """``compile_fx_inner`` for one graph of AOTAutograd: forward, backward or inference."""
    found = rewrite.devices(graph)
    chips = {device for device in found if device.type == rewrite.CHIP}
    if not chips:
        return compile_fx_inner(graph, example_inputs, **options)
    if len(chips) > 1 or not found <= {*chips, rewrite.CPU}:
        return _eager(graph, found)
    (chip,) = chips
    returned = rewrite.outputs(graph)
    rewrite.to_cpu(graph, chip.index)
    options["get_decomp_fn"] = select_decomp_table  # the graph is CPU's now
    compiled = compile_fx_inner(graph, rewrite.as_inputs(example_inputs), **options)
    return _Compiled(compiled, chip.index, returned)


def _eager(graph: GraphModule, found: set[torch.device]) -> Callable[[list[Any]], Any]:
    names = ", ".join(sorted(map(str, found)))
    _logger.warning(
        "isthmus: a graph on several devices (%s) runs as eager kernels; compile their parts apart", names
    )
    return make_boxed_func(graph.forward)


class _Compiled:
    """Compiled code for the CPU as a function of chip tensors.

    Args:
        function: takes a list of inputs, which it empties.
        device: index of the chip.
        returned: what the graph's outputs are.
    """

    def __init__(self, function: Callable[[list[Any]], Any], device: int, returned: rewrite.Outputs) -> None:
        self._boxed_call = True  # an attribute of the instance: wrappers copy those, not the class's
        self._function = function
        self._device = device
        self._same = sorted(returned.inputs.items())
        self._on_cpu = returned.on_cpu

    def __call__(self, inputs: list[Any]) -> list[Any]:
        function = self._function
        if chip.is_current_stream_capturing():
            state = chip.default_generators[self._device].graphsafe_get_state()
            function = partial(self._replay, state)
        outer, host_call.state.is_running = host_call.state.is_running, True
        try:
            results = _C.call_on_host(function, inputs, self._device, self._same)
        finally:
            host_call.state.is_running = outer
        for position in self._on_cpu:
            results[position] = results[position].cpu()
        return results

    def _replay(self, state: torch.Generator, inputs: list[Any]) -> Any:
        """Run the code with the random state of the capture."""
        generator = chip.default_generators[self._device]
        outer = generator.graphsafe_get_state()
        generator.graphsafe_set_state(state)
        try:
            return self._function(inputs)
        finally:
            generator.graphsafe_set_state(outer)
