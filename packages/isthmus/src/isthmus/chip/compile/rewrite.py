"""Rewriting a graph that AOTAutograd traced on the chip into the same graph on the CPU.

Device arguments, the fake values that describe each node, constants, copies between the two devices, and operators
that must run on the chip. Imported when the first graph is compiled: it imports Dynamo's neighbourhood.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves, tree_map

from isthmus import _C
from isthmus.chip.compile import chip_calls

CPU = torch.device("cpu")
CHIP = "chip"
_aten, _prims = torch.ops.aten, torch.ops.prims


class Outputs(NamedTuple):
    """The properties of the graph's outputs that its compiled code does not have.

    Attributes:
        inputs: position of an output -> position of the input that it is.
        on_cpu: positions of the outputs that belong on the CPU.
    """

    inputs: dict[int, int]
    on_cpu: tuple[int, ...]


def devices(graph: GraphModule) -> set[torch.device]:
    """Every device that a value or an argument in the graph names; a chip without index is the current one."""
    found = set()
    for node in _nodes(graph):
        values = (node.meta.get("val"), node.args, node.kwargs)
        for leaf in tree_leaves(values):
            device = leaf.device if isinstance(leaf, torch.Tensor) else leaf
            if isinstance(device, torch.device):
                found.add(device)
    unnamed = torch.device(CHIP)
    if unnamed in found:
        found = found - {unnamed} | {torch.device(CHIP, _C.current_device())}
    return found


def outputs(graph: GraphModule) -> Outputs:
    """Read the outputs of a graph that is still on the chip."""
    placeholders = {node: i for i, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
    returned = tree_leaves(graph.graph.output_node().args)
    same = {i: placeholders[node] for i, node in enumerate(returned) if node in placeholders}
    on_cpu = tuple(i for i, node in enumerate(returned) if _device(node) == CPU)
    return Outputs(same, on_cpu)


def to_cpu(graph: GraphModule, device: int) -> None:
    """Rewrite the graph, and the graphs in it, in place.

    Args:
        graph: all of whose chip tensors are on chip:device.
        device: index of the chip.
    """
    for module in _modules(graph):
        for node in list(module.graph.nodes):
            if node.op == "call_function":
                _rewrite_call(node, device)
            elif node.op == "get_attr":
                _rewrite_constant(module, node)
    for node in _nodes(graph):  # last: the calls were rewritten by the devices of their arguments
        if "val" in node.meta:
            node.meta["val"] = values_on_cpu(node.meta["val"])
    for module in _modules(graph):
        module.recompile()


def values_on_cpu(values: Any) -> Any:
    """A tree of values with its fake chip tensors replaced by fake CPU tensors over the same fake storages."""
    return tree_map(_on_cpu, values)


def _modules(graph: GraphModule) -> list[GraphModule]:
    return [module for module in graph.modules() if isinstance(module, GraphModule)]


def _nodes(graph: GraphModule) -> Iterator[Node]:
    return (node for module in _modules(graph) for node in module.graph.nodes)


def _device(node: Any) -> torch.device | None:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.device if isinstance(value, torch.Tensor) else None


def _on_cpu(value: Any) -> Any:
    is_on_chip = isinstance(value, FakeTensor) and value.fake_device.type == CHIP
    return chip_calls.move_fake(value, CPU) if is_on_chip else value


def _rewrite_call(node: Node, device: int) -> None:
    if _crosses_devices(node):
        _rewrite_copy(node)
        return
    if isinstance(node.target, OpOverload) and chip_calls.must_run_on_chip(node.target):
        node.target = chip_calls.on_chip(node.target, device)
    elif node.target in _HIGHER_ORDER_MUTATION:
        mutating = node.args[0]
        if isinstance(mutating, OpOverload) and chip_calls.must_run_on_chip(mutating):
            node.args = (chip_calls.on_chip(mutating, device), *node.args[1:])
    node.args = map_aggregate(node.args, _cpu_for_chip)
    node.kwargs = map_aggregate(node.kwargs, _cpu_for_chip)


_HIGHER_ORDER_MUTATION = (
    torch.ops.higher_order.auto_functionalized,
    torch.ops.higher_order.auto_functionalized_v2,
)


def _cpu_for_chip(argument: Any) -> Any:
    return CPU if isinstance(argument, torch.device) and argument.type == CHIP else argument


def _crosses_devices(node: Node) -> bool:
    if node.target not in (_prims.device_put.default, _aten._to_copy.default):
        return False
    return _device(node.args[0]) != _device(node)


def _rewrite_copy(node: Node) -> None:
    """A copy to another device stays a copy: on one device, to() would return its argument."""
    source, result = node.args[0], values_on_cpu(node.meta["val"])
    assert isinstance(source, Node)
    with node.graph.inserting_before(node):
        copy = node.graph.call_function(_aten.clone.default, (source,))
        copy.meta["val"] = result.to(source.meta["val"].dtype)
        if result.dtype is not source.meta["val"].dtype:
            copy = node.graph.call_function(_prims.convert_element_type.default, (copy, result.dtype))
            copy.meta["val"] = result
    node.replace_all_uses_with(copy)
    node.graph.erase_node(node)


def _rewrite_constant(module: GraphModule, node: Node) -> None:
    path, _, name = str(node.target).rpartition(".")
    owner = attrgetter(path)(module) if path else module
    value = getattr(owner, name)
    if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and value.device.type == CHIP:
        alias = _C.as_host(value)
        if name in owner._parameters:
            del owner._parameters[name]
        setattr(owner, name, alias)


def as_inputs(example_inputs: Sequence[Any]) -> list[Any]:
    """The example inputs of a graph, on the CPU."""
    return [_on_cpu(value) for value in example_inputs]
