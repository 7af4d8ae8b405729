"""Collectives of vLLM's process groups, by the c10d backend of the accelerator."""

from __future__ import annotations

import torch
import torch.distributed as dist
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase


class ChipCommunicator(DeviceCommunicatorBase):
    """Collectives that vLLM's base class does in place, or not at all."""

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        """Sum over the ranks into a new tensor; vLLM goes on using the input."""
        output = input_.clone()
        dist.all_reduce(output, group=self.device_group)
        return output
