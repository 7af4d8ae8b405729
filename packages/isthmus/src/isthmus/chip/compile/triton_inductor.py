"""Inductor for a chip that has a Triton backend: the graph stays on the chip, and its kernels are written in Triton.

Importing this imports Inductor, and tells it what the device can do.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any, cast
from unittest.mock import patch

import torch
from torch._dynamo.device_interface import register_interface_for_device
from torch._higher_order_ops.triton_kernel_wrap import (
    triton_kernel_wrapper_functional,
    triton_kernel_wrapper_mutation,
)
from torch._inductor import utils
from torch._inductor.codegen.common import (
    DeviceOpOverrides,
    register_backend_for_device,
    register_device_op_overrides,
)
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.compile_fx import compile_fx
from torch._inductor.runtime.benchmarking import register_benchmarker
from torch._library.triton import get_triton_kernels_for_op
from torch._ops import OpOverload
from torch.fx import GraphModule

from isthmus import chip
from isthmus.chip.compile import flex_attention, tracing
from isthmus.chip.compile.dynamo_device import ChipInterface

CHIP = "chip"
_OPTIONS = {
    # A kernel is compiled for one size of blocks, unless the caller asks for more (mode="max-autotune").
    "triton.autotune_pointwise": False,
    # Fake convolutions of devices that PyTorch does not list have contiguous results, whatever the inputs.
    "layout_optimization": False,
}


def compile_graph(
    model: GraphModule, inputs: list[Any], *, config_patches: dict[str, Any] | None, region: str | None
) -> Callable[..., Any]:
    """Return the result of Inductor's ``compile_fx`` for a graph that has tensors on the chip.

    Args:
        model: as Dynamo hands it to a backend.
        inputs: example inputs.
        config_patches: Inductor's options for this graph.
        region: name of the compiled region.

    Raises:
        RuntimeError: no Triton backend compiles for the chip.
    """
    if not ChipInterface.is_triton_capable():
        raise RuntimeError("no Triton backend compiles for this chip: run `pip install isthmus-triton`")
    register()
    tracing.trace_composites_as_cpu()
    flex_attention.avoid_decoding(model)
    settings = {**_OPTIONS, **(config_patches or {}), "triton.cudagraphs": False}
    compiled: Any = compile_fx(model, inputs, config_patches=settings, compile_region_name=region)
    return cast(Callable[..., Any], compiled)


def launches_triton(model: GraphModule) -> bool:
    """Whether a graph launches kernels in Triton, by itself or by operators of ``torch.library.triton_op``."""
    return any(
        node.target in (triton_kernel_wrapper_functional, triton_kernel_wrapper_mutation)
        or (isinstance(node.target, OpOverload) and get_triton_kernels_for_op(node.target.name()))
        for module in model.modules()
        if isinstance(module, GraphModule)
        for node in module.graph.nodes
    )


@functools.cache
def register() -> None:
    """Make the chip one of Inductor's devices with Triton; once in a process."""
    if CHIP not in utils.GPU_TYPES:
        utils.GPU_TYPES.append(CHIP)
    utils.get_gpu_type.cache_clear()
    with patch.object(utils, "GPU_TYPES", [CHIP]):  # "cuda" answers too where the chip stands for it
        utils.get_gpu_type()
    # Inductor asks for the device's interface by its name with "hip" replaced by "cuda".
    register_interface_for_device(CHIP.replace("hip", "cuda"), ChipInterface)
    register_device_op_overrides(CHIP, _Calls())
    register_backend_for_device(CHIP, TritonScheduling, PythonWrapperCodegen)
    register_benchmarker(CHIP, _benchmark, override=True)
    _leave_products_to_the_chip()


class _Calls(DeviceOpOverrides):
    """The calls of the runtime in generated code."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"from isthmus.chip.compile.dynamo_device import get_raw_stream as {name}"

    def set_device(self, device_idx: int) -> str:
        return f"torch.chip.set_device({device_idx})"

    def synchronize(self) -> str:
        return "torch.chip.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.chip.device({device_idx})"

    def current_stream(self) -> str:
        return "torch.chip.current_stream()"


def _leave_products_to_the_chip() -> None:
    """Fill the cache of ``is_big_gpu``, which warns that matrix products are not generated on few multiprocessors."""
    level = utils.log.level
    utils.log.setLevel(logging.ERROR)
    for index in range(chip.device_count()):
        utils.is_big_gpu(torch.device(CHIP, index))
    utils.log.setLevel(level)


def _benchmark(benchmarker: Any, function: Callable[[], Any], *, warmup: int, rep: int, **_: Any) -> float:
    """Milliseconds of a call, whose kernels may run later."""

    def call() -> None:
        function()
        chip.synchronize()

    return cast(float, benchmarker.benchmark_cpu(call, warmup=warmup, rep=rep))
