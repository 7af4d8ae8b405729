"""DTensor's rule for the operator that scaled_dot_product_attention reaches on the chip.

Each rank has some heads, or some of the batch, or all. PyTorch has such rules for the operators of CUDA. Along the
sequence it takes :mod:`isthmus.chip.patches.context_parallel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from isthmus._support.after_import import when_imported
from isthmus._support.patches import Scope

if TYPE_CHECKING:
    from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, PlacementList

BATCH, HEADS = 0, 1  # dimensions of query, key, value, output and logsumexp, which come in this order
OUTPUTS, INPUTS = 2, 3  # of the forward operator
GRADIENTS, SAVED = 3, 6  # outputs and inputs of the backward operator

_scope = Scope("distributed")


def install() -> None:
    """Register the rules as soon as DTensor is imported."""
    if not _scope.patches:
        when_imported("torch.distributed.tensor", _register)


def uninstall() -> None:
    """Take the rules back."""
    _scope.undo()


def _register() -> None:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor._ops.utils import register_op_strategy

    aten = torch.ops.aten
    rules = {
        aten._scaled_dot_product_flash_attention_for_cpu.default: (_forward, INPUTS),
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: (_backward, SAVED),
    }
    for operator, (rule, tensors) in rules.items():
        register_op_strategy(operator, RuntimeSchemaInfo(tensors, needs_pytree=True))(rule)

    def undo() -> None:
        propagator = DTensor._op_dispatcher.sharding_propagator
        for operator in rules:
            propagator.op_strategy_funcs.pop(operator, None)
            propagator.op_to_schema_info.pop(operator, None)

    _scope.record(
        "torch.distributed.tensor: rules of attention",
        "DTensor has rules for the attention of CUDA only",
        undo,
    )


def _forward(schema: OpSchema) -> OpStrategy:
    return _strategy(schema, OUTPUTS, INPUTS)


def _backward(schema: OpSchema) -> OpStrategy:
    return _strategy(schema, GRADIENTS, SAVED)


def _strategy(schema: OpSchema, outputs: int, inputs: int) -> OpStrategy:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

    masks = schema.kwargs_strategy  # none or one
    rows: list[PlacementList] = [[Replicate()] * (outputs + inputs + len(masks))]
    for dim in (BATCH, HEADS):
        of_masks = [Shard(dim) if _has(mask, dim) else Replicate() for mask in masks]
        rows.append([*[Shard(dim)] * (outputs + inputs), *of_masks])
    mesh = schema.get_mesh_from_args(validate=False)
    return expand_to_full_mesh_op_strategy(mesh, schema, rows, input_index=outputs)


def _has(mask: OpStrategy, dim: int) -> bool:
    """Whether a mask has its own dimension there and is not broadcast."""
    return mask.ndim == 4 and mask.shape[dim] != 1
