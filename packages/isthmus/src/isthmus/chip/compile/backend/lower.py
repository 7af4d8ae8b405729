"""Passes over a graph of AOTAutograd that change no bit of its results."""

from __future__ import annotations

import torch
from torch._functorch.compile_utils import fx_graph_cse
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

LARGEST_CONSTANT = 1 << 20  # bytes

_aten = torch.ops.aten


def lower(graph: GraphModule) -> None:
    """Compute equal calls once and constants now, and drop copies and dead calls; in place."""
    if not any(_writes(node) for node in graph.graph.nodes if node.target is not _aten.copy_.default):
        graph.graph = fx_graph_cse(graph.graph)
        _fold_constants(graph)
        _drop_copies(graph)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _writes(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


# ---- Constants


def _fold_constants(graph: GraphModule) -> None:
    """Replace what depends on no input by tensors that are computed once.

    A result of the graph, and what may be a view of it, stays a call: it has to be fresh each time.
    """
    known: dict[Node, torch.Tensor] = {}
    with _disable_current_modes(), unset_fake_temporarily(), torch.no_grad():
        for node in graph.graph.nodes:
            if _is_constant(node, known):
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
                known[node] = node.target(*args, **kwargs)
    for node, value in known.items():
        users = [
            user for user in node.users if user not in known and user.op != "output" and not _is_view(user)
        ]
        if users:
            _replace_by_constant(graph, node, value, users)


def _is_constant(node: Node, known: dict[Node, torch.Tensor]) -> bool:
    operator = node.target
    if not isinstance(operator, OpOverload) or torch.Tag.nondeterministic_seeded in operator.tags:
        return False
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not all(each in known for each in node.all_input_nodes):
        return False
    sizes = (*value.shape, value.untyped_storage().nbytes())
    return all(isinstance(size, int) for size in sizes) and sizes[-1] <= LARGEST_CONSTANT


def _is_view(node: Node) -> bool:
    """Whether a node's result may share the memory of its input."""
    operator = node.target
    if not isinstance(operator, OpOverload) or operator is _aten._unsafe_view.default:
        return True
    return any(result.alias_info for result in operator._schema.returns)


def _replace_by_constant(graph: GraphModule, node: Node, value: torch.Tensor, users: list[Node]) -> None:
    name = f"_constant_{node.name}"
    graph.register_buffer(name, value, persistent=False)
    with graph.graph.inserting_before(node):
        constant = graph.graph.get_attr(name)
    constant.meta["val"] = node.meta["val"]
    for user in users:
        user.replace_input_with(node, constant)


# ---- Copies


def _drop_copies(graph: GraphModule) -> None:
    """Remove copies of a fresh result that nothing else uses, in the same layout and dtype."""
    for node in graph.graph.nodes:
        if node.target not in (_aten.clone.default, _aten._to_copy.default):
            continue
        source = node.args[0]
        if (
            isinstance(source, Node)
            and len(source.users) == 1
            and _is_fresh(source)
            and _same_kind(source, node)
        ):
            node.replace_all_uses_with(source)
            graph.graph.erase_node(node)


def _is_fresh(node: Node) -> bool:
    """Whether a node's result shares its memory with nothing."""
    return not _is_view(node) and len(node.target._schema.returns) == 1  # type: ignore[union-attr]


def _same_kind(first: Node, second: Node) -> bool:
    one, other = (node.meta["val"] for node in (first, second))
    return (one.dtype, one.device, one.stride()) == (other.dtype, other.device, other.stride())
