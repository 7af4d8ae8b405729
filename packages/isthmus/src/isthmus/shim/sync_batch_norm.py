"""SyncBatchNorm on the CPU, which PyTorch refuses: statistics over all ranks by two all-reduces."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from isthmus_common.patches import Scope


def install(scope: Scope, called: Callable[[], None] = lambda: None) -> None:
    """Let SyncBatchNorm compute on CPU tensors, and DistributedDataParallel accept it.

    Args:
        scope: scope of the patches.
        called: called with each forward pass that takes its statistics from several ranks.
    """
    if not torch.distributed.is_available():
        return
    scope.replace(
        "torch.nn.SyncBatchNorm.forward",
        functools.partial(_on_cpu, called),
        "PyTorch computes SyncBatchNorm only on an accelerator",
        expects=("self", "input"),
    )
    scope.replace(
        "torch.nn.parallel.DistributedDataParallel._passing_sync_batchnorm_handle",
        lambda _: lambda self, module: None,
        "DistributedDataParallel refuses SyncBatchNorm on the CPU",
        expects=("self", "module"),
    )


def _on_cpu(called: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def forward(self: Any, input: torch.Tensor) -> Any:
        if input.device.type != "cpu":
            return original(self, input)
        if not (self.training and torch.distributed.is_initialized()):
            return torch.nn.modules.batchnorm._BatchNorm.forward(self, input)
        group = self.process_group or torch.distributed.group.WORLD
        if torch.distributed.get_world_size(group) == 1:
            return torch.nn.modules.batchnorm._BatchNorm.forward(self, input)
        called()
        return _over_ranks(self, input, group)

    return forward


def _over_ranks(layer: Any, input: torch.Tensor, group: Any) -> torch.Tensor:
    """Normalize an input of shape (N, C, ...) by the mean and variance of the batches of all ranks."""
    from torch.distributed.nn.functional import all_reduce  # differentiable

    layer._check_input_dim(input)
    x = input.float() if input.element_size() < 4 else input
    dims = [0, *range(2, x.dim())]
    shape = [1, -1, *[1] * (x.dim() - 2)]
    count = x.new_tensor([x.numel() // x.size(1)])
    sums = all_reduce(torch.cat((x.sum(dims), count)), group=group)
    total = sums[-1].detach()
    mean = sums[:-1] / total
    centred = x - mean.view(shape)
    variance = all_reduce(centred.square().sum(dims), group=group) / total
    _update(layer, mean.detach(), variance.detach(), total)
    result = centred * torch.rsqrt(variance + layer.eps).view(shape)
    if layer.affine:
        result = result * layer.weight.view(shape) + layer.bias.view(shape)
    return result.to(input.dtype)


@torch.no_grad()
def _update(layer: Any, mean: torch.Tensor, variance: torch.Tensor, total: torch.Tensor) -> None:
    """Update the running statistics; their variance is unbiased."""
    if not layer.track_running_stats:
        return
    layer.num_batches_tracked.add_(1)
    factor = 1.0 / layer.num_batches_tracked.item() if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), factor)
    layer.running_var.lerp_((variance * total / (total - 1)).to(layer.running_var.dtype), factor)
