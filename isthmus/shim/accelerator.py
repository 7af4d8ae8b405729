"""The accelerator that ``cuda`` stands for, and how its names are translated.

Nothing here names a chip: everything asks ``torch.accelerator``.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

import isthmus
from isthmus import options

CUDA = "cuda"
CPU = "cpu"


class NoAccelerator(RuntimeError):
    """There is no accelerator for a CUDA script to run on."""


class Accelerator:
    """The device type that answers for CUDA.

    Attributes:
        type: ``torch.device`` type, such as ``chip``.
        module: its device module, such as ``torch.chip``.
        is_cuda: whether it is CUDA itself, so that nothing needs translating.
        tensor_types: where its typed tensors are, such as ``torch.chip.``.
    """

    def __init__(self, device_type: str, module: ModuleType) -> None:
        self.type = device_type
        self.module = module
        self.is_cuda = device_type == CUDA
        self.tensor_types = f"torch.{device_type}."

    def name(self, text: str) -> str:
        """``cuda`` or ``cuda:1`` as a name of this accelerator; any other text as it is."""
        if text == CUDA or text.startswith("cuda:"):
            return self.type + text[len(CUDA) :]
        return text

    def cuda_name(self, text: str) -> str:
        """The inverse of :meth:`name`: what a CUDA script expects to read."""
        if text == self.type or text.startswith(self.type + ":"):
            return CUDA + text[len(self.type) :]
        return text

    def device(self, value: Any) -> Any:
        """A device argument: a CUDA string or device becomes this accelerator's; anything else is as it was."""
        if type(value) is str:
            return self.name(value)
        if isinstance(value, torch.device) and value.type == CUDA:
            return torch.device(self.type) if value.index is None else torch.device(self.type, value.index)
        return value

    def numbered_device(self, value: Any) -> Any:
        """The same for an argument that may be a device's number, which PyTorch takes for this accelerator's."""
        return self.device(value)

    def key(self, name: str) -> str:
        """A dispatch key: ``CUDA``, ``AutogradCUDA`` and ``AutocastCUDA`` become this accelerator's."""
        for prefix in ("", "Autograd", "Autocast"):
            if name == f"{prefix}CUDA":
                return prefix + torch._C._dispatch_key_for_device(self.type)
        return name

    def collective_backend(self) -> str:
        """The c10d backend that serves this accelerator; gloo where none is registered for it."""
        from torch.distributed import Backend

        return str(Backend.default_device_backend_map.get(self.type, "gloo"))

    def backend(self, name: str) -> str:
        """A c10d backend string: ``nccl``, also as ``cuda:nccl,cpu:gloo``, becomes this accelerator's."""
        return ",".join(self._pair(pair) for pair in name.lower().split(","))

    def cuda_backend(self, name: str) -> str:
        """The inverse of :meth:`backend`; gloo, where it stands in for NCCL, stays gloo."""
        return ",".join(self._cuda_pair(pair) for pair in name.split(","))

    def _cuda_pair(self, pair: str) -> str:
        device, separator, backend = pair.rpartition(":")
        is_ours = backend == self.collective_backend() != "gloo"
        return self.cuda_name(device) + separator + ("nccl" if is_ours else backend)

    def _pair(self, pair: str) -> str:
        device, separator, backend = pair.rpartition(":")
        return self.name(device) + separator + (self.collective_backend() if backend == "nccl" else backend)


def current(check: bool = True) -> Accelerator:
    """The accelerator of this process; the CPU where ``ISTHMUS_DEVICE=cpu`` asks for it.

    Args:
        check: it must also have a usable device, which may initialise its runtime.

    Raises:
        NoAccelerator: there is none, with the remedy.
    """
    if options.text("device") == CPU:
        from isthmus.shim.cpu import Cpu

        return Cpu()
    device = torch.accelerator.current_accelerator(check_available=check)
    if device is None:
        reason = isthmus.status().reason
        why = f"the chip is not registered ({reason}) and PyTorch sees no other; `isthmus doctor` says why"
        raise NoAccelerator(f"no accelerator: {_driver_error() or why}")
    return Accelerator(device.type, torch.get_device_module(device))


def _driver_error() -> str:
    """Why the driver that Isthmus has opened offers no device; "" where it has opened none."""
    if not isthmus.status().registered:
        return ""
    from isthmus import _C

    return _C.device_error()
