"""DTensor's rules for the operators that scaled_dot_product_attention reaches on the chip: CPU's and the fused one.

Each rank has some heads, or some of the batch, or all. PyTorch has such rules for the operators of CUDA. Along the
sequence it takes :mod:`isthmus.chip.patches.context_parallel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from isthmus_common.patches import Scope

if TYPE_CHECKING:
    from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, PlacementList

BATCH, HEADS = 0, 1  # dimensions of query, key, value, output and logsumexp, which come in this order
OUTPUTS, INPUTS = 2, 3  # numbers of outputs and inputs of the forward operator
GRADIENTS, SAVED = 3, 6  # outputs and inputs of the backward operator
MASK, FUSED_MASK = 3, 4  # position of the mask among the arguments of the fused operator and of its backward

_scope = Scope("distributed")


def install() -> None:
    """Register the rules as soon as DTensor is imported."""
    if not _scope.patches:
        _scope.when_imported(
            "torch.distributed.tensor", _register, "DTensor has rules for the attention of CUDA only"
        )


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
        aten._scaled_dot_product_fused_attention_overrideable.default: (_fused_forward, MASK + 1),
        aten._scaled_dot_product_fused_attention_overrideable_backward.default: (
            _fused_backward,
            FUSED_MASK + 1,
        ),
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
    return _strategy(schema, OUTPUTS, INPUTS, masks=schema.kwargs_strategy)


def _backward(schema: OpSchema) -> OpStrategy:
    return _strategy(schema, GRADIENTS, SAVED, masks=schema.kwargs_strategy)


def _fused_forward(schema: OpSchema) -> OpStrategy:
    """The results after output and logsumexp are two absent tensors, two numbers, the seed, its offset, and none."""
    masks = _tensors(schema.args_schema[MASK : MASK + 1])
    return _strategy(
        schema, OUTPUTS, INPUTS, masks, after_outputs=(None, None, None, None, "seed", "seed", None)
    )


def _fused_backward(schema: OpSchema) -> OpStrategy:
    masks = _tensors(schema.args_schema[FUSED_MASK : FUSED_MASK + 1])
    after = _tensors(schema.args_schema[FUSED_MASK + 4 :])  # lengths, seed and offset
    return _strategy(
        schema, GRADIENTS, 4, masks, after_outputs=("mask",), after_masks=2, replicated=len(after)
    )


def _tensors(arguments: tuple[object, ...]) -> list[OpStrategy]:
    from torch.distributed.tensor._op_schema import OpStrategy

    return [each for each in arguments if isinstance(each, OpStrategy)]


def _strategy(
    schema: OpSchema,
    outputs: int,
    inputs: int,
    masks: Sequence[OpStrategy],
    *,
    after_outputs: Sequence[str | None] = (),
    after_masks: int = 0,
    replicated: int = 0,
) -> OpStrategy:
    """Whole tensors, or rows of the batch, or heads.

    Args:
        schema: the call.
        outputs: tensors that come out and have a batch and heads.
        inputs: tensors before the mask that have them.
        masks: none or one.
        after_outputs: further results: None for one that is no tensor, the "seed", or the gradient of the "mask".
        after_masks: tensors after the mask that have a batch and heads.
        replicated: tensors after these that have none.
    """
    from torch.distributed.tensor import Partial, Placement, Replicate, Shard
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

    def row(place: Placement, of_mask: Placement, of_gradient: Placement) -> PlacementList:
        more = {None: None, "seed": Replicate(), "mask": of_gradient if masks else None}
        given = [
            *[place] * inputs,
            *[of_mask] * len(masks),
            *[place] * after_masks,
            *[Replicate()] * replicated,
        ]
        return [*[place] * outputs, *(more[each] for each in after_outputs), *given]

    rows = [row(Replicate(), Replicate(), Replicate())]
    for dim in (BATCH, HEADS):
        shared = not all(_has(mask, dim) for mask in masks)
        rows.append(row(Shard(dim), *((Replicate(), Partial()) if shared else (Shard(dim), Shard(dim)))))
    mesh = schema.get_mesh_from_args(validate=False)
    return expand_to_full_mesh_op_strategy(mesh, schema, rows, input_index=outputs + len(after_outputs))


def _has(mask: OpStrategy, dim: int) -> bool:
    """Whether a mask has its own dimension there and is not broadcast."""
    return mask.ndim == 4 and mask.shape[dim] != 1
