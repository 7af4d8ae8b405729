"""Data parallelism: gradients are averaged over the ranks after the backward."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

_MESSAGE = 10_000_000  # elements


def _buckets(tensors: Iterable[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    """Lists of tensors of one dtype, each until it has ``size`` elements."""
    held: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        bucket = held.setdefault(tensor.dtype, [])
        bucket.append(tensor)
        if sum(each.numel() for each in bucket) >= size:
            yield held.pop(tensor.dtype)
    yield from held.values()


def _broadcast(module: nn.Module) -> None:
    """Give all ranks the parameters of rank 0."""
    for bucket in _buckets((param.detach() for param in module.parameters()), _MESSAGE):
        flat = _flatten_dense_tensors(bucket)
        dist.broadcast(flat, 0)
        for tensor, received in zip(bucket, _unflatten_dense_tensors(flat, bucket), strict=True):
            tensor.copy_(received)


class Reducer:
    """Averages gradients over the ranks when :meth:`reduce` is called.

    Args:
        module_or_grads_list: a module, whose parameters are broadcast from rank 0; or gradients, nested as they are.
    """

    def __init__(self, module_or_grads_list: Any) -> None:
        self.module = module_or_grads_list if isinstance(module_or_grads_list, nn.Module) else None
        self.grads: list[torch.Tensor] = []
        if self.module is not None:
            _broadcast(self.module)
        else:
            self.grads = list(_tensors(module_or_grads_list))

    @torch.no_grad()
    def reduce(self) -> None:
        """Average the gradients, in place."""
        grads = self.grads
        if self.module is not None:
            grads = [param.grad for param in self.module.parameters() if param.grad is not None]
        for bucket in _buckets(grads, _MESSAGE):
            flat = _flatten_dense_tensors(bucket)
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            for tensor, reduced in zip(bucket, _unflatten_dense_tensors(flat, bucket), strict=True):
                tensor.copy_(reduced)


def _tensors(nested: Any) -> Iterator[torch.Tensor]:
    if isinstance(nested, torch.Tensor):
        yield nested
    elif isinstance(nested, Iterable):
        for each in nested:
            yield from _tensors(each)


class DistributedDataParallel(nn.Module):
    """Averages gradients over all ranks at the end of each backward; parameters are broadcast from rank 0 at first.

    All communication is at the end of the backward, as with apex's ``delay_allreduce``. Ranks must use the same
    parameters in a step.

    Args:
        module: the model.
        message_size: minimum number of elements in a bucket.
        delay_allreduce: ignored.
        shared_param: not supported, as in apex.
        allreduce_trigger_params: ignored.
        retain_allreduce_buffers: not supported.
        allreduce_always_fp32: reduce half-precision gradients in float32.
        num_allreduce_streams: ignored.
        allreduce_communicators: ignored.
        gradient_average: divide the sums by the number of ranks.
        gradient_predivide_factor: divide by this before the sum, and by the rest after it.
        gradient_average_split_factor: ignored.
        prof: ignored.

    Raises:
        NotImplementedError: ``retain_allreduce_buffers``.
        ValueError: ``shared_param``.
    """

    def __init__(
        self,
        module: nn.Module,
        message_size: int = _MESSAGE,
        delay_allreduce: bool = False,
        shared_param: Any = None,
        allreduce_trigger_params: Any = None,
        retain_allreduce_buffers: bool = False,
        allreduce_always_fp32: bool = False,
        num_allreduce_streams: int = 1,
        allreduce_communicators: Any = None,
        gradient_average: bool = True,
        gradient_predivide_factor: float = 1.0,
        gradient_average_split_factor: Any = None,
        prof: bool = False,
    ) -> None:
        super().__init__()
        if shared_param is not None:
            raise ValueError("DistributedDataParallel: shared_param is not supported; omit it")
        if retain_allreduce_buffers:
            raise NotImplementedError(
                "DistributedDataParallel: retain_allreduce_buffers=True is not supported"
            )
        self.module = module
        self.message_size = message_size
        self.allreduce_always_fp32 = allreduce_always_fp32
        self.gradient_average = gradient_average
        self.gradient_predivide_factor = gradient_predivide_factor
        self._disable_allreduce = False
        self._changed: set[nn.Parameter] = set()  # parameters with a new gradient in this backward
        for param in module.parameters():
            if param.requires_grad:
                param.register_post_accumulate_grad_hook(self._record)
        _broadcast(module)

    def enable_allreduce(self) -> None:
        """Reduce gradients in the next backward."""
        self._disable_allreduce = False

    def disable_allreduce(self) -> None:
        """Leave the gradients of the next backward as they are, to accumulate."""
        self._disable_allreduce = True

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.module(*inputs, **kwargs)

    def _record(self, param: torch.Tensor) -> None:
        if self._disable_allreduce:
            return
        if not self._changed:
            torch.autograd.Variable._execution_engine.queue_callback(self._reduce)
        self._changed.add(param)  # type: ignore[arg-type]

    @torch.no_grad()
    def _reduce(self) -> None:
        changed, self._changed = self._changed, set()
        grads = [each.grad for each in self.module.parameters() if each in changed and each.grad is not None]
        for bucket in _buckets(grads, self.message_size):
            flat = _flatten_dense_tensors(bucket)
            flat = flat.float() if self.allreduce_always_fp32 else flat
            if self.gradient_predivide_factor != 1:
                flat /= self.gradient_predivide_factor
            dist.all_reduce(flat)
            if self.gradient_average:
                flat *= self.gradient_predivide_factor / dist.get_world_size()
            for tensor, reduced in zip(bucket, _unflatten_dense_tensors(flat, bucket), strict=True):
                tensor.copy_(reduced)
