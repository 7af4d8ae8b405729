"""Collectives of vLLM's process groups, by the c10d backend of the accelerator."""

from __future__ import annotations

import torch
import torch.distributed as dist
from vllm.distributed.device_communicators.xpu_communicator import XpuCommunicator


class ChipCommunicator(XpuCommunicator):
    """vLLM's communicator of XPUs: it calls torch.distributed, and its experts gather and scatter by that."""

    def all_gatherv(
        self, input_: torch.Tensor | list[torch.Tensor], dim: int = 0, sizes: list[int] | None = None
    ) -> torch.Tensor | list[torch.Tensor]:
        """Rows of all ranks, of which each may have another number; XPUs take one tensor for all of them."""
        if isinstance(input_, torch.Tensor):
            return self._gather_rows(input_, sizes)
        return [self._gather_rows(each, sizes) for each in input_]

    def _gather_rows(self, rows: torch.Tensor, sizes: list[int] | None) -> torch.Tensor:
        parts = [rows.new_empty(size, *rows.shape[1:]) for size in sizes or [len(rows)] * self.world_size]
        dist.all_gather(parts, rows.contiguous(), group=self.device_group)
        return torch.cat(parts)
