"""PyTorch's context parallelism over the operators that scaled_dot_product_attention reaches on the chip.

``torch.distributed.tensor.experimental.context_parallel`` turns attention of tensors that are sharded along the
sequence into a ring, for the operators of CUDA. The chip's are CPU's or the fused one, which its table of handlers
lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isthmus_common.patches import Scope

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
        _scope.when_imported(MODULE, _add, "context parallelism knows the attention of CUDA only")


def uninstall() -> None:
    """Take them out of the table."""
    _scope.undo()


def _add() -> None:
    from torch.distributed.tensor.experimental._context_parallel._attention import custom_ops

    aten = torch.ops.aten
    handlers = {
        aten._scaled_dot_product_flash_attention_for_cpu.default: _forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _backward,
        aten._scaled_dot_product_fused_attention_overrideable.default: _fused_forward,
        aten._scaled_dot_product_fused_attention_overrideable_backward.default: _fused_backward,
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
    dropout, is_causal = _complete_arguments(arguments[3:], 0.0, False)
    return _ring(operator, arguments[:3], options.get("attn_mask"), dropout, is_causal, options.get("scale"))


def _fused_forward(
    operator: OpOverload, arguments: Sequence[Any], options: dict[str, Any]
) -> tuple[Any, ...]:
    mask, dropout, is_causal = _complete_arguments(arguments[3:6], None, 0.0, False)
    query, key, _ = whole = arguments[:3]
    output, logsumexp = _ring(operator, whole, mask, dropout, is_causal, options.get("scale"))
    seed = torch.zeros((), dtype=torch.int64, device=query.device)
    return output, logsumexp, None, None, query.shape[SEQUENCE], key.shape[SEQUENCE], seed, seed.clone(), None


def _complete_arguments(given: Sequence[Any], *defaults: Any) -> list[Any]:
    """The arguments, and the defaults of those that are missing."""
    return [*given, *defaults[len(given) :]]


def _ring(
    operator: OpOverload,
    whole: Sequence[DTensor],
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[DTensor, DTensor]:
    """Output and logsumexp."""
    from torch.distributed.tensor.experimental._context_parallel._attention import _templated_ring_attention

    _check(dropout, mask)
    group, (query, key, value) = _parts(*whole)
    output, logsumexp, *_ = _templated_ring_attention(
        group, SEQUENCE, operator, query, key, value, is_causal=is_causal, dropout_p=dropout, scale=scale
    )
    return _whole_tensor(output, whole[0]), _whole_tensor(logsumexp, whole[0])


def _backward(operator: OpOverload, arguments: Sequence[Any], options: dict[str, Any]) -> tuple[DTensor, ...]:
    *tensors, dropout, is_causal = arguments
    _check(dropout, options.get("attn_mask"))
    return _ring_backward(
        operator, tensors, dropout_p=dropout, is_causal=is_causal, scale=options.get("scale")
    )


def _fused_backward(
    operator: OpOverload, arguments: Sequence[Any], options: dict[str, Any]
) -> tuple[DTensor | None, ...]:
    gradient, query, key, value, mask, wanted, output, logsumexp = arguments[:8]
    _check(arguments[12], mask)
    names = (
        "cum_seq_q",
        "cum_seq_k",
        "max_q",
        "max_k",
        "dropout_p",
        "is_causal",
        "philox_seed",
        "philox_offset",
    )
    rest = dict(zip(names, arguments[8:], strict=True), attn_bias=None, grad_input_mask=wanted)
    tensors = (gradient, query, key, value, output, logsumexp)
    return (*_ring_backward(operator, tensors, scale=options.get("scale"), **rest), None)


def _ring_backward(operator: OpOverload, tensors: Sequence[DTensor], **options: Any) -> tuple[DTensor, ...]:
    """Gradients of query, key and value, from the gradient, these three, the output and the logsumexp."""
    from torch.distributed.tensor.experimental._context_parallel._attention import (
        _templated_ring_attention_backward,
    )

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
        **options,
    )
    return tuple(_whole_tensor(each, like) for each, like in zip(gradients[:3], tensors[1:4], strict=True))


def _check(dropout: float, mask: Tensor | None) -> None:
    if dropout != 0:
        raise NotImplementedError(
            f"context parallelism on the chip has no dropout of attention, got {dropout}"
        )
    if mask is not None:
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


def _whole_tensor(part: Tensor, like: DTensor) -> DTensor:
    """The tensor whose part this rank has, sharded as like is."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    shape = list(part.shape)
    shape[SEQUENCE] = like.shape[SEQUENCE]
    stride = torch.empty(shape, device="meta").stride()
    meta = TensorMeta(torch.Size(shape), stride, part.dtype)
    return DTensor(part, DTensorSpec(like.device_mesh, like.placements, meta), requires_grad=False)
