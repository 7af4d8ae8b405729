"""Compiles a program with chip tensors by AOTInductor, as code for the CPU over aliases. Importing this imports Inductor.

The graph is traced on the chip and rewritten as in :mod:`isthmus.graph.host_inductor`. The weights are stored beside
the code, so that a process that loads the package has them once, in the chip's memory.
"""

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
from torch._inductor import compile_fx, config
from torch._inductor.decomposition import select_decomp_table
from torch._ops import OpOverload
from torch.fx import GraphModule

from isthmus.graph import chip_calls, rewrite, tracing
from isthmus.graph.package import METADATA, Input, Signature

_WEIGHTS = {
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_constants_on_disk_format": "pickle_weights",
}


def compile_program(
    compile_fx_aot: Callable[..., Any], model: GraphModule, inputs: list[Any], options: dict[str, Any]
) -> Any:
    """Return what Inductor's ``compile_fx_aot`` does: the files of the package.

    Args:
        compile_fx_aot: Inductor's own.
        model: an exported program's module.
        inputs: flat example inputs.
        options: Inductor's options.

    Raises:
        ValueError: the program is on several chips, or calls operators that have no kernel for the CPU.
    """
    tracing.trace_composites_as_cpu()
    if options.get("aot_inductor.package", config.aot_inductor.package) and not config.freezing:
        options = {**_WEIGHTS, **options}
    with config.patch(options):
        table = tracing.decompositions()
    # compile_fx_aot has no parameter for decompositions; compile_fx, which it calls, has.
    with_table = functools.partial(compile_fx.compile_fx, decompositions=table)
    with mock.patch.object(compile_fx, "compile_fx", with_table):
        return compile_fx_aot(model, inputs, inner_compile=_compile_inner, config_patches=options)


def _compile_inner(graph: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
    """``compile_fx_inner`` for the graph that AOTAutograd traced on the chip."""
    chips = {device for device in rewrite.devices(graph) if device.type == rewrite.CHIP}
    if len(chips) != 1:
        raise ValueError(f"a package is for one chip; the program has tensors on {sorted(map(str, chips))}")
    (chip,) = chips
    returned = rewrite.outputs(graph)
    found = Signature(_inputs(graph), sorted(returned.inputs.items()), list(returned.on_cpu))
    rewrite.to_cpu(graph, chip.index)
    _refuse_calls_on_chip(graph)
    options["get_decomp_fn"] = select_decomp_table  # the graph is CPU's now
    metadata = {**config.aot_inductor.metadata, METADATA: json.dumps(found)}
    with config.patch({"aot_inductor.metadata": metadata}):
        return compile_fx.compile_fx_inner(graph, rewrite.as_inputs(example_inputs), **options)


def _inputs(graph: GraphModule) -> list[Input]:
    """The tensors among the placeholders; other arguments are constants of the code."""
    return [
        _input(node.name, node.meta["val"])
        for node in graph.graph.find_nodes(op="placeholder")
        if isinstance(node.meta.get("val"), torch.Tensor)
    ]


def _input(name: str, value: torch.Tensor) -> Input:
    sizes = [(size, "") if isinstance(size, int) else (size.node.hint, str(size)) for size in value.shape]
    dtype = str(value.dtype).removeprefix("torch.")
    return Input(name, value.device.type, dtype, [hint for hint, _ in sizes], [symbol for _, symbol in sizes])


def _refuse_calls_on_chip(graph: GraphModule) -> None:
    """Refuse the operators of chip_calls: their twins are made by the process that compiles."""
    names = {
        str(node.target)
        for module in graph.modules()
        if isinstance(module, GraphModule)
        for node in module.graph.nodes
        if isinstance(node.target, OpOverload) and node.target.namespace == chip_calls.NAMESPACE
    }
    if names:
        raise ValueError(
            f"a package cannot call {', '.join(sorted(names))}: the operator draws random numbers or has no kernel "
            "for the CPU. Call model.eval() before the export, or run the exported program (torch.export.save)."
        )
