"""Fusion of pointwise operators: finds the runs of a graph and replaces each by one operator with a generated kernel.

The operator's composite is the run itself, by which shapes, strides and dtypes of results are inferred, and which
serves a call that the kernel does not.
"""

from __future__ import annotations

import ast
import hashlib
import logging
from collections.abc import Iterator, Sequence
from operator import getitem
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node

from isthmus import _C
from isthmus.chip.compile.backend.grouping import groups_of, sort
from isthmus.chip.registration import add_operators, code_generator
from isthmus.drivers.generators import Generator
from isthmus.drivers.libraries import LoadedOperator, address_of, import_tvm_ffi
from isthmus.opset import dtypes as dt
from isthmus.opset import pointwise
from isthmus.opset.library import HOST
from isthmus.opset.pointwise import Kernel, Run, Step, Value

NAMESPACE = "isthmus_fused"
_library = torch.library.Library(NAMESPACE, "DEF")
_logger = logging.getLogger("isthmus")
_defined: dict[str, OpOverload] = {}
_kept: list[Any] = []  # functions whose addresses the dispatcher holds
# Eager calls of these use numbers in float32 with halves; others convert them to the halves' dtype.
_WIDE_NUMBERS = ("mul.", "div.", "pow.", "addcmul", "addcdiv", "lerp", "leaky_relu", "threshold_backward")


def fuse_pointwise(graph: GraphModule) -> None:
    """Replace runs of pointwise operators in place, if the driver has a code generator."""
    generator = code_generator()
    if generator is None:
        return
    steps = {node: step for node in graph.graph.nodes if (step := _step(node)) is not None}
    found = [
        group
        for members in groups_of(graph.graph, steps.keys(), _shape)
        for group in _fitting_groups(members, steps, generator.most_operands)
        if group.steps >= generator.shortest
    ]
    new = {group.name: group for group in found if group.name not in _defined}
    runs = {group.run.name: group.run for group in new.values()}
    try:
        kernels = dict(zip(runs, _generate_kernels(generator, [*runs.values()]), strict=True))
    except RuntimeError as error:
        _logger.warning("isthmus: pointwise operators are not fused: %s", error)
        return
    for group in new.values():
        _defined[group.name] = _define(group, kernels[group.run.name])
    replaced: dict[Node, Node] = {}
    for group in found:
        group.replace(_defined[group.name], replaced)
    sort(graph.graph)


def _generate_kernels(generator: Generator, runs: list[Run]) -> list[Kernel]:
    """The kernels of new runs.

    Raises:
        RuntimeError: the generator failed, or its kernels cannot access the chip's memory.
    """
    kernels = generator.generate(runs) if runs else []
    if any(kernel.flags & HOST for kernel in kernels) and not _C.driver()["functions"]["host_window"]:
        raise RuntimeError(
            "generated kernels compute on the CPU, which cannot address this chip's memory; for code_generator = "
            '"triton", install the Triton backend of the chip\'s maker'
        )
    return kernels


def _shape(node: Node) -> Any:
    return node.meta["val"].device, tuple(map(str, node.meta["val"].shape))


# ---- Operators of the graph as steps


def _step(node: Node) -> Step | None:
    """The step of a node, with nodes as operands; None if it cannot be fused."""
    target = node.target
    if (
        not isinstance(target, OpOverload)
        or target.namespace != "aten"
        or not _is_fusible(node.meta.get("val"))
    ):
        return None
    arguments = _arguments(node, target)
    overload = target.name().removeprefix("aten::")
    expression = pointwise.expression_of(overload, arguments)
    if expression is None:
        return None
    names = [name for name in _names(expression) if name in arguments]
    tensors = [arguments[name] for name in names if isinstance(arguments[name], Node)]
    if not all(_is_fusible(each.meta.get("val"), node) for each in tensors):
        return None
    compute = _compute_dtype(node, overload, [arguments[name] for name in names])
    if not _computes(expression, compute, node, tensors):
        return None
    wide = overload.startswith(_WIDE_NUMBERS) and compute in (torch.float16, torch.bfloat16)
    operands = {name: _operand(arguments[name], torch.float32 if wide else compute) for name in names}
    if any(operand is None for operand in operands.values()):
        return None
    return Step(expression, operands, _name(compute), _name(node.meta["val"].dtype))


def _arguments(node: Node, target: OpOverload) -> dict[str, Any]:
    given = iter(node.args)
    found = {}
    for argument in target._schema.arguments:
        default = argument.default_value if argument.has_default_value() else None
        value = node.kwargs.get(argument.name, default)
        found[argument.name] = value if argument.kwarg_only else next(given, value)
    return found


def _names(expression: str) -> list[str]:
    names = [node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)]
    return [name for name in dict.fromkeys(names) if name not in pointwise.FUNCTIONS]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_fusible(value: Any, consumer: Node | None = None) -> bool:
    if (
        not isinstance(value, torch.Tensor)
        or value.layout is not torch.strided
        or _name(value.dtype) not in dt.ALL
    ):
        return False
    return value.device.type != "cpu" and (consumer is None or consumer.meta["val"].device == value.device)


def _compute_dtype(node: Node, overload: str, operands: Sequence[Any]) -> torch.dtype:
    """The dtype in which an eager call computes: the result's, or that to which the operands of a bool promote."""
    values = [each.meta["val"] if isinstance(each, Node) else each for each in operands]
    if overload in ("_to_copy", "clone"):
        found: torch.dtype = values[0].dtype
        return found
    result: torch.dtype = node.meta["val"].dtype
    if result is not torch.bool or overload.startswith(("where", "masked_fill")):
        return result
    promoted = torch._prims_common.elementwise_dtypes(
        *values, type_promotion_kind=torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    )
    return promoted[1]


def _computes(expression: str, compute: torch.dtype, node: Node, tensors: Sequence[Node]) -> bool:
    """Whether generated code may compute in the dtype: functions are floating, conversions to integers differ."""
    result = node.meta["val"].dtype
    if compute.is_floating_point:
        return bool(result.is_floating_point or result is torch.bool)
    if any(each.meta["val"].dtype.is_floating_point for each in tensors):
        return False
    called = {part.func.id for part in ast.walk(ast.parse(expression)) if isinstance(part, ast.Call)}  # type: ignore[attr-defined]
    return "/" not in expression and called <= {"where", "maximum", "minimum", "abs"}


def _operand(value: Any, dtype: torch.dtype) -> Any:
    """A node, or a number in the dtype to which an eager call converts it; None if neither."""
    if isinstance(value, Node):
        return value if isinstance(value.meta.get("val"), torch.Tensor) else None
    if not isinstance(value, bool | int | float):
        return None
    if isinstance(value, float) and not dtype.is_floating_point and not value.is_integer():
        return None
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None).to(dtype).item()


# ---- A run and its operator


class _Group:
    """Nodes that become one call.

    Args:
        members: in the order of the graph.
        steps: of all nodes that can be fused.
    """

    def __init__(self, members: Sequence[Node], steps: dict[Node, Step]) -> None:
        self.members = list(members)
        inside = set(members)
        used: Iterator[Any] = (each for node in members for each in steps[node].operands.values())
        self.inputs: list[Node] = list(
            dict.fromkeys(each for each in used if isinstance(each, Node) and each not in inside)
        )
        self.outputs = [node for node in members if any(user not in inside for user in node.users)]
        position = {node: i for i, node in enumerate([*self.inputs, *self.members])}
        self.run = Run(
            tuple(_name(node.meta["val"].dtype) for node in self.inputs),
            tuple(_place_step(steps[node], position) for node in members),
            tuple(position[node] for node in self.outputs),
        )
        self.composite = self._composite()
        layout = hashlib.sha256(self.composite.code.encode()).hexdigest()[:8]
        self.name = f"{self.run.name}_{layout}"  # two runs may differ in the layout of their results alone

    @property
    def steps(self) -> int:
        """Number of operators that compute."""
        return sum(step.expression != "self" for step in self.run.steps)

    @property
    def operands(self) -> int:
        """Number of tensors that the kernel receives."""
        return len(self.inputs) + len(self.outputs)

    def _composite(self) -> GraphModule:
        graph = Graph()
        copies = {node: graph.placeholder(f"v{i}") for i, node in enumerate(self.inputs)}
        for i, node in enumerate(self.members, len(copies)):
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node].name = f"v{i}"
            # A conversion may name the device, which is that of its input: shapes are inferred on meta tensors.
            copies[node].kwargs = {k: v for k, v in copies[node].kwargs.items() if k != "device"}
        results = tuple(copies[node] for node in self.outputs)
        graph.output(results if len(results) > 1 else results[0])
        return GraphModule(torch.nn.Module(), graph)

    def replace(self, operator: OpOverload, replaced: dict[Node, Node]) -> None:
        """Call the operator in place of the members, and add their successors to those of groups before."""
        graph = self.members[0].graph
        with graph.inserting_after(self.members[-1]):
            call = graph.call_function(operator, tuple(replaced.get(node, node) for node in self.inputs))
        results = [call]
        call.meta["val"] = self.outputs[0].meta["val"]
        if len(self.outputs) > 1:
            call.meta["val"] = tuple(node.meta["val"] for node in self.outputs)
            results = list(_items(call, len(self.outputs)))
        for node, result in zip(self.outputs, results, strict=True):
            result.meta["val"] = node.meta["val"]
            node.replace_all_uses_with(result)
            replaced[node] = result
        for node in reversed(self.members):
            graph.erase_node(node)


def _fitting_groups(members: Sequence[Node], steps: dict[Node, Step], most: int) -> Iterator[_Group]:
    """Yield the nodes as groups of at most so many operands, in the order of the graph; a larger node is left out."""
    group = _Group(members, steps)
    if group.operands <= most:
        yield group
    elif middle := len(members) // 2:
        yield from _fitting_groups(members[:middle], steps, most)
        yield from _fitting_groups(members[middle:], steps, most)


def _items(call: Node, count: int) -> Iterator[Node]:
    previous = call
    for i in range(count):
        with call.graph.inserting_after(previous):
            previous = call.graph.call_function(getitem, (call, i))
        yield previous


def _place_step(step: Step, position: dict[Node, int]) -> Step:
    operands = {
        name: Value(position[each]) if isinstance(each, Node) else each
        for name, each in step.operands.items()
    }
    return step._replace(operands=operands)


def _define(group: _Group, kernel: Kernel) -> OpOverload:
    """Define the operator of a run with its composite and its kernel."""
    parameters = ", ".join(f"Tensor v{i}" for i in range(len(group.inputs)))
    results = ", ".join(["Tensor"] * len(group.outputs))
    _library.define(f"{group.name}({parameters}) -> ({results})")
    _library.impl(group.name, group.composite, "CompositeExplicitAutograd")
    address, handle = kernel.function, kernel.handle
    if not isinstance(address, int):
        function = import_tvm_ffi().convert(address)
        _kept.append(function)
        address, handle = address_of(function)
    full = f"{NAMESPACE}::{group.name}"
    add_operators("generated", [LoadedOperator(full, dt.mask(dt.ALL), kernel.flags, address, handle)])
    operator: OpOverload = getattr(getattr(torch.ops, NAMESPACE), group.name).default
    _C.serve_extension(full)
    return operator
