"""Batch normalization over the batches of all ranks."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class SyncBatchNorm(nn.SyncBatchNorm):
    """:class:`torch.nn.SyncBatchNorm` with apex's arguments.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: of the running statistics; None is a cumulative mean.
        affine: whether to have a weight and a bias.
        track_running_stats: whether to have running statistics.
        process_group: group of the statistics; None is all ranks.
        channel_last: channels are the last dimension of the input.
        fuse_relu: apply ReLU to the result.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        channel_last: bool = False,
        fuse_relu: bool = False,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, process_group)
        self.channel_last, self.fuse_relu = channel_last, fuse_relu

    def forward(self, input: torch.Tensor, z: torch.Tensor | None = None) -> torch.Tensor:
        """Normalize [batch, channels, ...], or [..., channels] with ``channel_last``, and add ``z``."""
        moves = self.channel_last and input.dim() > 2
        out = super().forward(input.movedim(-1, 1) if moves else input)
        out = out.movedim(1, -1) if moves else out
        out = out if z is None else out + z
        return out.relu() if self.fuse_relu else out


def convert_syncbn_model(
    module: nn.Module, process_group: Any = None, channel_last: bool = False
) -> nn.Module:
    """Replace each batch normalization in a module, and return the module.

    Args:
        module: changed in place, unless it is a batch normalization itself.
        process_group: of :class:`SyncBatchNorm`.
        channel_last: of :class:`SyncBatchNorm`.
    """
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        return module
    found = module
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        options = (module.eps, module.momentum, module.affine, module.track_running_stats, process_group)
        found = SyncBatchNorm(module.num_features, *options, channel_last)
        found.train(module.training)
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(found, name, getattr(module, name))
    for name, child in module.named_children():
        found.add_module(name, convert_syncbn_model(child, process_group, channel_last))
    return found


def create_syncbn_process_group(group_size: int) -> Any:
    """This rank's group of ``group_size`` consecutive ranks; None, all ranks, for 0.

    Raises:
        ValueError: ``group_size`` does not divide the number of ranks.
    """
    if group_size == 0:
        return None
    world = dist.get_world_size()
    if world % group_size:
        raise ValueError(f"create_syncbn_process_group: {group_size} does not divide the {world} ranks")
    groups = [dist.new_group(range(i, i + group_size)) for i in range(0, world, group_size)]
    return groups[dist.get_rank() // group_size]
