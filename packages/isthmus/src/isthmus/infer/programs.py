"""Loads .pt2 archives: exported programs, which run as eager kernels, and AOTInductor packages, as compiled code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from isthmus.chip.compile import package
from isthmus.chip.compile.package import Input
from isthmus.infer import archive
from isthmus.infer.model import InferError, Model

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def load(path: Path, device: torch.device) -> Model:
    """Load the model of an archive; errors as of :func:`isthmus.infer.loading.load`."""
    exported, packages = archive.models(path)
    name = (packages or exported)[0] if len(packages or exported) == 1 else "model"
    if name not in (packages or exported):
        raise InferError(
            f"{path}: several models in the archive ({', '.join(packages or exported)}), none named model"
        )
    try:
        return _package(path, name, device) if packages else _load_exported(path, device)
    except InferError:
        raise
    except Exception as error:
        raise InferError.from_error(path, error) from error


def _package(path: Path, name: str, device: torch.device) -> Model:
    about = package.metadata(str(path), name)
    made_for = about["AOTI_DEVICE_KEY"]
    archive.require_device(path, made_for)
    if about.get("AOTI_CPU_ISA", "").startswith("AVX512") and "AVX512" not in _cpu():
        raise InferError(f"{path}: compiled for a CPU with AVX-512, which this one lacks; compile it here")
    signature = package.signature(about)
    if signature is not None and device.type in (made_for, "cpu"):
        loader: Any = package.open_package(str(path), name, device)
    elif device.type == made_for:
        index = -1 if device.index is None else device.index
        loader = torch._C._aoti.AOTIModelPackageLoader(str(path), name, False, 1, index)
    else:
        raise InferError(f"{path}: compiled for {made_for}, not for {device.type}; give --device {made_for}")
    inputs = None if signature is None else signature.inputs
    outputs = [] if signature is None else signature.outputs
    return Model("AOTInductor package", device, inputs, outputs, lambda tensors: list(loader.run(tensors)))


def _cpu() -> str:
    return torch.backends.cpu.get_cpu_capability()


def _load_exported(path: Path, device: torch.device) -> Model:
    from torch.export.passes import move_to_device_pass

    for each in archive.devices(path):
        archive.require_device(path, each)
    program = torch.export.load(path)
    inputs = _inputs(program)
    if {value.device for value in program.state_dict.values()} != {device}:
        program = move_to_device_pass(program, str(device))
        inputs = [each._replace(device=device.type) for each in inputs]
    return Model("exported program", device, inputs, _outputs(program), _flat(program))


def _inputs(program: ExportedProgram) -> list[Input]:
    wanted = program.graph_signature.user_inputs
    nodes = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    return [
        package.describe(name, nodes[name])
        for name in wanted
        if isinstance(name, str) and isinstance(nodes.get(name), Tensor)
    ]


def _outputs(program: ExportedProgram) -> list[str]:
    """Names of the outputs that are tensors."""
    from torch.export.graph_signature import OutputKind, TensorArgument

    returned = [each for each in program.graph_signature.output_specs if each.kind is OutputKind.USER_OUTPUT]
    names = package.output_names(program.call_spec.out_spec)
    return [name for name, each in zip(names, returned, strict=True) if isinstance(each.arg, TensorArgument)]


def _flat(program: ExportedProgram) -> Callable[[list[Tensor]], list[Tensor]]:
    """The program as a function of its tensors; its other arguments are those of the export."""
    if program.example_inputs is None:
        raise InferError("the program has no example inputs; export it again")
    module, spec = program.module(), program.call_spec.in_spec
    constants = pytree.tree_leaves(program.example_inputs)

    def run(tensors: list[Tensor]) -> list[Tensor]:
        left = iter(tensors)
        leaves = [next(left) if isinstance(each, Tensor) else each for each in constants]
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        return [each for each in pytree.tree_leaves(module(*args, **kwargs)) if isinstance(each, Tensor)]

    return run
