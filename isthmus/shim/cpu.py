"""The CPU in CUDA's place: a CUDA script then runs where there is no accelerator, with the CPU's own results.

``ISTHMUS_DEVICE=cpu`` asks for it. It is what `isthmus migrate verify` takes for the original's results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from isthmus._support.patches import Scope
from isthmus.shim import cpu_device
from isthmus.shim.accelerator import CPU, CUDA, Accelerator
from isthmus.shim.devices import translate_first


class Cpu(Accelerator):
    """The CPU as the device that answers for CUDA; the number of a CUDA device is dropped."""

    def __init__(self) -> None:
        super().__init__(CPU, cpu_device)
        self.tensor_types = "torch."

    def name(self, text: str) -> str:
        """``cpu`` for a CUDA device's name; any other text as it is."""
        return CPU if text == CUDA or text.startswith("cuda:") else text

    def cuda_name(self, text: str) -> str:
        """The text: what is on the CPU may be there by itself."""
        return text

    def device(self, value: Any) -> Any:
        """A device argument: what names a CUDA device becomes the CPU."""
        return (
            torch.device(CPU)
            if isinstance(value, torch.device) and value.type == CUDA
            else super().device(value)
        )

    def numbered_device(self, value: Any) -> Any:
        """The same, and for a number."""
        return torch.device(CPU) if type(value) is int else self.device(value)


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Let PyTorch take on the CPU what it takes on an accelerator only; nothing changes where there is one."""
    if accelerator.type != CPU:
        return
    scope.replace(
        "torch.Tensor.pin_memory",
        lambda _: lambda self, device=None: self,
        "PyTorch pins memory for an accelerator only",
    )
    scope.replace(
        "torch.Tensor.record_stream", lambda _: lambda self, stream: None, "the CPU's memory knows no streams"
    )
    scope.replace(
        "torch.nn.Module.to",
        functools.partial(translate_first, accelerator, "device", 1),
        "a device's number is refused where there is no accelerator",
    )
    if torch.distributed.is_available():
        scope.replace(
            "torch.nn.parallel.DistributedDataParallel.__init__",
            _without_devices,
            "DistributedDataParallel refuses device_ids for a module on the CPU",
            expects=("self", "module", "device_ids", "output_device"),
        )


def _without_devices(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        original(self, module, None, None, *args, **kwargs)

    return init
