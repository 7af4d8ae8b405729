"""The accelerator that replaces CUDA, and the translation of device and backend names.

Names no particular chip: the device comes from ``torch.accelerator``.
"""

import os
from types import ModuleType
from typing import Any

import torch

import isthmus
from isthmus import options
from isthmus.shim import cpu_device, rules

CUDA = "cuda"
CPU = "cpu"
HIDDEN = "CUDA_VISIBLE_DEVICES={} hides every device; unset it to use one"


class NoAccelerator(RuntimeError):
    """Error of a process without an available accelerator."""


class Accelerator:
    """The device type that replaces CUDA.

    Attributes:
        type: ``torch.device`` type, such as ``chip``.
        module: its device module, such as ``torch.chip``.
        is_cuda: whether it is CUDA itself, so no translation is needed.
        tensor_types: prefix of its typed tensors, such as ``torch.chip.``.
    """

    def __init__(self, device_type: str, module: ModuleType) -> None:
        self.type = device_type
        self.module = module
        self.is_cuda = device_type == CUDA
        self.tensor_types = f"torch.{device_type}."

    def name(self, text: str) -> str:
        """Translate ``cuda`` or ``cuda:1`` to this accelerator; return other text unchanged."""
        if text == CUDA or text.startswith("cuda:"):
            return self.type + text[len(CUDA) :]
        return text

    def cuda_name(self, text: str) -> str:
        """The inverse of :meth:`name`: the name that a CUDA script expects."""
        if text == self.type or text.startswith(self.type + ":"):
            return CUDA + text[len(self.type) :]
        return text

    def device(self, value: Any) -> Any:
        """Translate a device argument (string or ``torch.device``); return other values unchanged."""
        if type(value) is str:
            return self.name(value)
        if isinstance(value, torch.device) and value.type == CUDA:
            return torch.device(self.type) if value.index is None else torch.device(self.type, value.index)
        return value

    def numbered_device(self, value: Any) -> Any:
        """Translate a device argument that may be an index; PyTorch resolves indices to this accelerator."""
        return self.device(value)

    def key(self, name: str) -> str:
        """Translate a dispatch key of CUDA, such as ``CUDA``, ``AutogradCUDA`` and ``SparseCUDA``."""
        for prefix in rules.KEY_PREFIXES:
            if name == f"{prefix}CUDA":
                return prefix + torch._C._dispatch_key_for_device(self.type)
        return name

    def collective_backend(self) -> str:
        """The c10d backend registered for this accelerator; gloo if none is."""
        from torch.distributed import Backend

        return str(Backend.default_device_backend_map.get(self.type, "gloo"))

    def backend(self, name: str) -> str:
        """Translate a c10d backend string, such as ``nccl`` or ``cuda:nccl,cpu:gloo``."""
        return ",".join(self._pair(pair) for pair in name.lower().split(","))

    def cuda_backend(self, name: str) -> str:
        """The inverse of :meth:`backend`; gloo stays gloo."""
        return ",".join(self._cuda_pair(pair) for pair in name.split(","))

    def _cuda_pair(self, pair: str) -> str:
        device, separator, backend = pair.rpartition(":")
        is_ours = backend == self.collective_backend() != "gloo"
        return self.cuda_name(device) + separator + ("nccl" if is_ours else backend)

    def _pair(self, pair: str) -> str:
        device, separator, backend = pair.rpartition(":")
        return self.name(device) + separator + (self.collective_backend() if backend == "nccl" else backend)


class Cpu(Accelerator):
    """The CPU in place of CUDA; device indices are dropped."""

    def __init__(self) -> None:
        super().__init__(CPU, cpu_device)
        self.tensor_types = "torch."

    def name(self, text: str) -> str:
        """Translate the name of any CUDA device to ``cpu``; return other text unchanged."""
        return CPU if text == CUDA or text.startswith("cuda:") else text

    def cuda_name(self, text: str) -> str:
        """Return the text unchanged: a ``cpu`` may be the script's own."""
        return text

    def device(self, value: Any) -> Any:
        """Translate a device argument; every CUDA device becomes the CPU."""
        return (
            torch.device(CPU)
            if isinstance(value, torch.device) and value.type == CUDA
            else super().device(value)
        )

    def numbered_device(self, value: Any) -> Any:
        """Translate a device argument that may be an index."""
        return torch.device(CPU) if type(value) is int else self.device(value)


def current(check: bool = True) -> Accelerator:
    """The accelerator of this process, or the CPU with ``ISTHMUS_DEVICE=cpu``.

    Args:
        check: require a usable device; may initialize the runtime.

    Raises:
        NoAccelerator: no accelerator is available.
    """
    if options.text("device") == CPU:
        return Cpu()
    device = torch.accelerator.current_accelerator(check_available=check)
    if device is None:
        raise NoAccelerator(f"no accelerator: {_why_none()}")
    return Accelerator(device.type, torch.get_device_module(device))


def _why_none() -> str:
    status = isthmus.status()
    if not status.registered:
        return f"the chip is not registered ({status.reason}) and PyTorch sees no other; `isthmus doctor` says why"
    from isthmus import _C

    if error := _C.device_error():
        return error
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"driver {status.driver} has no device" if visible is None else HIDDEN.format(visible)
