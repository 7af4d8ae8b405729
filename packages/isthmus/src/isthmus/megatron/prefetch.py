"""Sequence parallelism: overlap the all-gather of a gradient with the recompute of its layer.

A row-parallel layer ends with a reduce-scatter, whose gradient is an all-gather. If the layer is the last of a
checkpoint, the all-gather comes before the recompute, which does not need it. So the all-gather is started there, and
waited for after the recompute, at a saved tensor between product and reduce-scatter.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from isthmus.megatron import recompute


class _Waits(torch.autograd.Function):
    """Identity whose backward waits for the all-gather, after the recompute of its checkpoint."""

    @staticmethod
    def forward(ctx: Any, partial: torch.Tensor, started: list[Any]) -> torch.Tensor:
        ctx.save_for_backward(partial.new_empty(0))
        ctx.started = started
        return partial.view_as(partial)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        _ = ctx.saved_tensors  # recomputes
        work, _ = ctx.started.pop()
        work.wait()
        return grad, None


class _ReduceScatter(torch.autograd.Function):
    """Reduce-scatter of [tokens, ...]; the backward starts an asynchronous all-gather."""

    @staticmethod
    def forward(ctx: Any, partial: torch.Tensor, group: Any, started: list[Any]) -> torch.Tensor:
        ctx.group, ctx.started = group, started
        out = partial.new_empty(partial.shape[0] // group.size(), *partial.shape[1:])
        dist.reduce_scatter_tensor(out, partial.contiguous(), group=group)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        whole, part = grad.new_empty(grad.shape[0] * ctx.group.size(), *grad.shape[1:]), grad.contiguous()
        work = dist.all_gather_into_tensor(whole, part, group=ctx.group, async_op=True)
        ctx.started.append((work, part))  # keeps the input alive until then
        return whole, None, None


def under_recompute(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Replacement for ``reduce_scatter_to_sequence_parallel_region`` at levels above 0."""

    @functools.wraps(original)
    def reduce_scatter_to_sequence_parallel_region(
        input_: torch.Tensor,
        group: Any = None,
        input_split_sizes: Any = None,
        use_global_buffer: bool = False,
    ) -> torch.Tensor:
        is_plain = group is not None and input_split_sizes is None and not use_global_buffer
        if not recompute.level() or not is_plain or group.size() == 1 or input_.shape[0] % group.size():
            return original(input_, group, input_split_sizes, use_global_buffer)
        started: list[Any] = []
        return _ReduceScatter.apply(_Waits.apply(input_, started), group, started)

    return reduce_scatter_to_sequence_parallel_region
