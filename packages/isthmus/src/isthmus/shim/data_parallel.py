"""The C++ functions behind ``torch.nn.DataParallel``: copies between devices of one process.

PyTorch builds these seven functions only for CUDA.
"""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from isthmus.shim.accelerator import Accelerator
from isthmus.shim.devices import instead
from isthmus_common.patches import Scope


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Provide the functions behind torch.nn.parallel.comm."""
    functions = _Functions(accelerator.type)
    for name in (
        "_broadcast",
        "_broadcast_coalesced",
        "_broadcast_out",
        "_scatter",
        "_scatter_out",
        "_gather",
        "_gather_out",
    ):
        function = getattr(functions, name.removeprefix("_"))
        scope.replace(
            f"torch._C.{name}",
            functools.partial(instead, function),
            "PyTorch builds it only for CUDA; DataParallel needs it",
        )


class _Functions:
    def __init__(self, device_type: str) -> None:
        self._type = device_type

    def _device(self, index: int) -> torch.device:
        return torch.device("cpu") if index == -1 else torch.device(self._type, index)

    def broadcast(self, tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
        """Copy tensor to each device; the tensor itself on its own device."""
        return [tensor.to(self._device(index), non_blocking=True) for index in devices]

    def broadcast_coalesced(
        self, tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int
    ) -> list[list[Tensor]]:
        """Copy all tensors to each device; ``buffer_size`` is ignored."""
        return [
            [tensor.to(self._device(index), non_blocking=True) for tensor in tensors] for index in devices
        ]

    def broadcast_out(self, tensor: Tensor, out: Sequence[Tensor]) -> Sequence[Tensor]:
        """Copy tensor into each of out."""
        for target in out:
            target.copy_(tensor, non_blocking=True)
        return out

    def scatter(
        self,
        tensor: Tensor,
        devices: Sequence[int],
        chunk_sizes: Sequence[int] | None,
        dim: int,
        streams: Sequence[torch.Stream | None] | None,
    ) -> list[Tensor]:
        """Copy one chunk of tensor along dim to each device, on the given streams."""
        chunks = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
        placed = []
        for position, (chunk, index) in enumerate(zip(chunks, devices, strict=False)):
            stream: Any = streams[position] if streams else None
            with stream or contextlib.nullcontext():
                placed.append(chunk.to(self._device(index), non_blocking=True))
        return placed

    def scatter_out(
        self, tensor: Tensor, out: Sequence[Tensor], dim: int, streams: Sequence[torch.Stream | None] | None
    ) -> Sequence[Tensor]:
        """Copy chunks of tensor along dim into out, in the sizes of out."""
        for chunk, target in zip(tensor.split([part.size(dim) for part in out], dim), out, strict=True):
            target.copy_(chunk, non_blocking=True)
        return out

    def gather(self, tensors: Sequence[Tensor], dim: int, destination: int) -> Tensor:
        """Concatenate along dim on the device with index destination; -1 is the CPU."""
        device = self._device(destination)
        return torch.cat([tensor.to(device, non_blocking=True) for tensor in tensors], dim)

    def gather_out(self, tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
        """Concatenate along dim into out."""
        return torch.cat([tensor.to(out.device) for tensor in tensors], dim, out=out)
