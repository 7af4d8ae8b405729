"""FlexAttention in graphs that are compiled for the CPU, or as kernels in Triton.

Inductor's template for the CPU computes the output of attention alone, in inference. Other calls (training, the
logsumexp, float64) become the composition that eager calls run, before AOTAutograd traces the graph.
"""

from operator import getitem
from typing import Any, cast

import torch
from torch._higher_order_ops.flex_attention import flex_attention, sdpa_dense
from torch._inductor.kernel.flex.flex_cpu import check_cpu_supported
from torch.fx import GraphModule, Node

_OPTIONS = 6  # position of kernel_options among the operator's arguments
_DTYPES = {torch.float32, torch.float16, torch.bfloat16}


def choose(model: GraphModule, training: bool) -> None:
    """Choose between the template and the composition for each call in Dynamo's graph, which is changed in place.

    Args:
        model: the graph.
        training: whether it has a backward pass.
    """
    for node in _calls(model):
        _choose(node, training)
    for module in model.modules():
        if isinstance(module, GraphModule):
            module.recompile()


def avoid_decoding(model: GraphModule) -> None:
    """Take the template of long queries for all calls: that of decoding asks CUDA for its multiprocessors."""
    for node in _calls(model):
        if _options(node).get("BACKEND", "AUTO") == "AUTO":
            node.update_arg(_OPTIONS, {**_options(node), "BACKEND": "TRITON"})


def _calls(model: GraphModule) -> list[Node]:
    return [
        node
        for module in model.modules()
        if isinstance(module, GraphModule)
        for node in module.graph.find_nodes(op="call_function", target=flex_attention)
    ]


def _choose(node: Node, training: bool) -> None:
    if not training and _fits_template(node):
        node.update_arg(_OPTIONS, {**_options(node), "OUTPUT_LOGSUMEXP": False})
    else:
        node.target = sdpa_dense


def _options(node: Node) -> dict[str, Any]:
    return cast(dict[str, Any], node.args[_OPTIONS])


def _fits_template(node: Node) -> bool:
    used = {user.args[1] for user in node.users if user.target is getitem and user.users}
    dtypes = {cast(Node, argument).meta["example_value"].dtype for argument in node.args[:3]}
    return used <= {0} and len(dtypes) == 1 and dtypes <= _DTYPES and check_cpu_supported()
