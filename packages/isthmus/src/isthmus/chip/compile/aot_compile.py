"""Compiles a program with chip tensors by AOTInductor, as code for the CPU over aliases.

Importing this imports Inductor. The graph is traced on the chip and rewritten as in
:mod:`isthmus.chip.compile.host_inductor`. The weights are stored beside the code, so that a process that loads the
package has them once, in the chip's memory.
"""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._inductor import compile_fx, config
from torch._inductor.codecache import get_device_information
from torch._inductor.decomposition import select_decomp_table
from torch._ops import OpOverload
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from isthmus import _C
from isthmus.chip.compile import chip_calls, rewrite, tracing
from isthmus.chip.compile.package import CHIP, METADATA, Input, Signature, describe, output_names

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
    if _changes_buffers(model):  # the pass takes a uniform buffer, as a counter, for a constant
        options = {**options, "joint_graph_constant_folding": False}
    with config.patch(options):
        table = tracing.decompositions()
    # compile_fx_aot has no parameter for decompositions; compile_fx, which it calls, has.
    with_table = functools.partial(compile_fx.compile_fx, decompositions=table)
    names = [node.name for node in model.graph.find_nodes(op="placeholder")]
    out_spec = pytree.treespec_loads(options["aot_inductor.serialized_out_spec"])
    inner = functools.partial(_compile_inner, names, output_names(out_spec))
    with mock.patch.object(compile_fx, "compile_fx", with_table):
        files = compile_fx_aot(model, inputs, inner_compile=inner, config_patches=options)
    for file in files if isinstance(files, list) else []:
        if isinstance(file, str) and file.endswith("_metadata.json"):
            _name_device(Path(file))
    return files


def _changes_buffers(model: GraphModule) -> bool:
    operators = (node.target for node in model.graph.nodes if isinstance(node.target, OpOverload))
    return any(operator._schema.is_mutable for operator in operators)


def _name_device(file: Path) -> None:
    """Say in a package's metadata that it is the chip's; other processes than ours then refuse to load it."""
    metadata = json.loads(file.read_text())
    metadata |= {"AOTI_DEVICE_KEY": CHIP, **get_device_information(CHIP)}
    file.write_text(json.dumps(metadata))


def _compile_inner(
    inputs: list[str], outputs: list[str], graph: GraphModule, example_inputs: Sequence[Any], **options: Any
) -> Any:
    """``compile_fx_inner`` for the graph that AOTAutograd traced on the chip, with the names of its values."""
    chips = {device for device in rewrite.devices(graph) if device.type == rewrite.CHIP}
    if len(chips) != 1:
        raise ValueError(f"a package is for one chip; the program has tensors on {sorted(map(str, chips))}")
    (chip,) = chips
    returned = rewrite.outputs(graph)
    same = sorted(returned.inputs.items())
    found = Signature(_inputs(inputs, graph), outputs, same, list(returned.on_cpu))
    rewrite.to_cpu(graph, chip.index)
    for name, value in graph.meta.items():  # copies of buffers that the program changes
        if isinstance(value, torch.Tensor) and value.device.type == CHIP:
            graph.meta[name] = _C.as_host(value)
    _refuse_calls_on_chip(graph)
    options["get_decomp_fn"] = select_decomp_table  # the graph is CPU's now
    metadata = {**config.aot_inductor.metadata, METADATA: json.dumps(found)}
    with config.patch({"aot_inductor.metadata": metadata}):
        return compile_fx.compile_fx_inner(graph, rewrite.as_inputs(example_inputs), **options)


def _inputs(names: list[str], graph: GraphModule) -> list[Input]:
    """The tensors among the placeholders; other arguments are constants of the code."""
    return [
        describe(name, node.meta["val"])
        for name, node in zip(names, graph.graph.find_nodes(op="placeholder"), strict=True)
        if isinstance(node.meta.get("val"), torch.Tensor)
    ]


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
