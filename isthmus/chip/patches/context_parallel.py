"""PyTorch's context parallelism over the operator that scaled_dot_product_attention reaches on the chip.

``torch.distributed.tensor.experimental.context_parallel`` turns attention of tensors that are sharded along the
sequence into a ring, for the operators of CUDA. The chip's is CPU's, which takes no part in its table of handlers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isthmus._support.after_import import when_imported
from isthmus._support.patches import Scope

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor

MODULE = "torch.distributed.tensor.experimental._context_parallel._attention"
SEQUENCE = 2  # dimension of query, key and value, [batch, heads, sequence, features]

_scope = Scope("distributed")


def install() -> None:
    """Add the chip's operators to the table of handlers, as soon as it is imported."""
    if not _scope.patches:
        when_imported(MODULE, _add)


def uninstall() -> None:
    """Take them out of the table."""
    _scope.undo()


def _add() -> None:
    from torch.distributed.tensor.experimental._context_parallel._attention import custom_ops

    aten = torch.ops.aten
    handlers = {
        aten._scaled_dot_product_flash_attention_for_cpu.default: _forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _backward,
    }
    custom_ops.update(handlers)

    def undo() -> None:
        for operator in handlers:
            custom_ops.pop(operator, None)

    _scope.record(
        f"{MODULE}.custom_ops", "context parallelism has handlers for the attention of CUDA only", undo
    )


def _forward(
    operator: OpOverload, arguments: Sequence[Any], options: dict[str, Any]
) -> tuple[DTensor, DTensor]:
    from torch.distributed.tensor.experimental._context_parallel._attention import _templated_ring_attention

    whole, rest = arguments[:3], arguments[3:]
    dropout = rest[0] if rest else 0.0
    _check(dropout, options)
    group, (query, key, value) = _parts(*whole)
    output, logsumexp = _templated_ring_attention(
        group,
        SEQUENCE,
        operator,
        query,
        key,
        value,
        is_causal=len(rest) > 1 and rest[1],
        dropout_p=dropout,
        scale=options.get("scale"),
    )
    return _whole(output, whole[0]), _whole(logsumexp, whole[0])


def _backward(operator: OpOverload, arguments: Sequence[Any], options: dict[str, Any]) -> tuple[DTensor, ...]:
    from torch.distributed.tensor.experimental._context_parallel._attention import (
        _templated_ring_attention_backward,
    )

    *tensors, dropout, is_causal = arguments
    _check(dropout, options)
    group, (gradient, query, key, value, output, logsumexp) = _parts(*tensors)
    gradients = _templated_ring_attention_backward(
        group,
        SEQUENCE,
        operator,
        grad_out=gradient,
        grad_out_name="grad_out",
        query=query,
        key=key,
        value=value,
        out=output,
        logsumexp=logsumexp,
        is_causal=is_causal,
        dropout_p=dropout,
        scale=options.get("scale"),
    )
    return tuple(_whole(each, like) for each, like in zip(gradients, tensors[1:4], strict=True))


def _check(dropout: float, options: dict[str, Any]) -> None:
    if dropout != 0:
        raise NotImplementedError(
            f"context parallelism on the chip has no dropout of attention, got {dropout}"
        )
    if options.get("attn_mask") is not None:
        raise NotImplementedError("context parallelism has no attention mask; give is_causal=True or none")


def _parts(*tensors: DTensor) -> tuple[ProcessGroup, list[Tensor]]:
    """Group of the ranks and this rank's parts.

    Raises:
        NotImplementedError: a tensor is not sharded along the sequence, over one dimension of a mesh.
    """
    from torch.distributed.tensor import Shard

    for tensor in tensors:
        if tensor.placements != (Shard(SEQUENCE),):
            raise NotImplementedError(
                f"context parallelism takes tensors with the placements [Shard({SEQUENCE})], got "
                f"{list(tensor.placements)}"
            )
    return tensors[0].device_mesh.get_group(), [tensor._local_tensor for tensor in tensors]


def _whole(part: Tensor, like: DTensor) -> DTensor:
    """The tensor whose part this rank has, sharded as like is."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    shape = list(part.shape)
    shape[SEQUENCE] = like.shape[SEQUENCE]
    stride = torch.empty(shape, device="meta").stride()
    meta = TensorMeta(torch.Size(shape), stride, part.dtype)
    return DTensor(part, DTensorSpec(like.device_mesh, like.placements, meta), requires_grad=False)
