"""Stands in front of Inductor for graphs with tensors on the chip, for which it has no code generator.

Where the CPU addresses the chip's memory they are compiled for the CPU (:mod:`isthmus.chip.compile.host_inductor`);
elsewhere they go to the graph backend (:mod:`isthmus.chip.compile.backend`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from isthmus import options
from isthmus.chip.compile import package
from isthmus.chip.device import is_host_addressable
from isthmus_common.patches import Scope
from isthmus_common.progress import say

if TYPE_CHECKING:
    from torch.fx import GraphModule

DYNAMO = "torch._dynamo"
INDUCTOR = "torch._inductor.compile_fx"
EXPORT = "torch.export._trace"

_scope = Scope("graph")


def install() -> None:
    """Stand in front of Inductor, and give Dynamo the device's interface when it is first imported."""
    if not _scope.patches:
        _scope.replace(
            "torch._TorchCompileInductorWrapper.__call__",
            _before_inductor,
            "Inductor has no code generator for this device: its graphs are made CPU's, or go to the graph backend",
            expects=("self", "model_", "inputs_"),
        )
        _scope.when_imported(DYNAMO, _register_with_dynamo, "Dynamo asks for the device's interface")
        _scope.when_imported(EXPORT, _export_as_cpu, "export traces composites as on the CPU")
        _scope.when_imported(INDUCTOR, _stand_before_aot, "AOTInductor compiles the chip's programs")
        package.install(_scope)


def uninstall() -> None:
    """Give Inductor back its place."""
    _scope.undo()


def _before_inductor(inductor: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inductor)
    def compile_graph(
        self: Any, model_: GraphModule, inputs_: list[Any], *, config_patches: dict[str, Any] | None = None
    ) -> Any:
        if not _has_device(model_, inputs_, torch._C._get_privateuse1_backend_name()):
            return inductor(self, model_, inputs_, config_patches=config_patches)
        if not is_host_addressable():
            from isthmus.chip.compile import backend

            return backend.compile_graph(model_, inputs_)
        patches = {**self.config, **(config_patches or {})}
        return _compiler(model_)(model_, inputs_, config_patches=patches, region=self.name)

    return compile_graph


def _compiler(model: GraphModule) -> Callable[..., Any]:
    """The compiler that ISTHMUS_COMPILE_CODEGEN names; Triton's for a graph that launches kernels in Triton."""
    from isthmus.chip.compile import host_inductor, triton_inductor

    launches = triton_inductor.launches_triton(model)
    chosen = "triton" if launches else options.text("compile_codegen")
    if options.switch("trace"):
        reason = "it launches kernels in Triton" if launches else options.variable("compile_codegen")
        say(f"torch.compile: a graph of {len(model.graph.nodes)} nodes -> {chosen} ({reason})")
    return triton_inductor.compile_graph if chosen == "triton" else host_inductor.compile_graph


def _export_as_cpu() -> None:
    """Let torch.export trace composites as on the CPU: kernels of the chip's would make their sizes constants."""
    if is_host_addressable():
        from isthmus.chip.compile import tracing

        tracing.trace_composites_as_cpu()


def _stand_before_aot() -> None:
    _scope.replace(
        f"{INDUCTOR}.compile_fx_aot",
        _before_aot_inductor,
        "AOTInductor has no code generator for this device: its programs are made CPU's",
        expects=("model_", "example_inputs_", "inner_compile", "config_patches"),
    )


def _before_aot_inductor(compile_fx_aot: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compile_fx_aot)
    def compile_program(
        model_: GraphModule, example_inputs_: list[Any], *args: Any, config_patches: Any = None, **kwargs: Any
    ) -> Any:
        if not _has_device(model_, example_inputs_, torch._C._get_privateuse1_backend_name()):
            return compile_fx_aot(model_, example_inputs_, *args, config_patches=config_patches, **kwargs)
        if not is_host_addressable():
            raise NotImplementedError(
                "AOTInductor has no code generator for this chip, whose memory the CPU cannot address; save the "
                "program by torch.export.save and run it by `isthmus infer`"
            )
        from isthmus.chip.compile import aot_compile

        return aot_compile.compile_program(compile_fx_aot, model_, example_inputs_, config_patches or {})

    return compile_program


def _has_device(model: GraphModule, inputs: Sequence[Any], device_type: str) -> bool:
    """Whether an input, a parameter, a buffer or a value inside the graph is on the device."""
    return any(tensor.device.type == device_type for tensor in _tensors(model, inputs))


def _tensors(model: GraphModule, inputs: Sequence[Any]) -> Iterator[torch.Tensor]:
    yield from (value for value in inputs if isinstance(value, torch.Tensor))
    if not isinstance(model, torch.nn.Module):
        return
    yield from model.parameters()
    yield from model.buffers()
    from torch.utils._pytree import tree_leaves

    for node in getattr(getattr(model, "graph", None), "nodes", ()):
        values = tree_leaves((node.meta.get("example_value"), node.meta.get("val")))
        yield from (value for value in values if isinstance(value, torch.Tensor))


def _register_with_dynamo() -> None:
    from isthmus.chip.compile import dynamo_device

    dynamo_device.register()
