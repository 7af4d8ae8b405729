"""Patches for ``ISTHMUS_DEVICE=cpu``: a CUDA script runs on the CPU, with the CPU's results.

`isthmus migrate verify` uses it for its reference results.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from isthmus import _C
from isthmus.shim import sync_batch_norm
from isthmus.shim.accelerator import CPU, Accelerator
from isthmus.shim.devices import translate_first
from isthmus_common.patches import Scope


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Let PyTorch accept on the CPU what it accepts only on an accelerator. No effect on other accelerators."""
    if accelerator.type != CPU:
        return
    scope.replace(
        "torch.Tensor.pin_memory",
        lambda _: lambda self, device=None: self,
        "PyTorch pins memory only for an accelerator",
    )
    scope.replace("torch.Tensor.record_stream", lambda _: lambda self, stream: None, "the CPU has no streams")
    scope.replace(
        "torch.nn.Module.to",
        functools.partial(translate_first, accelerator, "device", 1),
        "PyTorch refuses device indices without an accelerator",
    )
    scope.replace(
        "torch.utils.data._utils.worker._worker_loop",
        _with_host_tensors,
        "a worker's tensors are the host's; libraries that refuse to send CUDA's would lose them",
    )
    sync_batch_norm.install(scope)
    if torch.distributed.is_available():
        scope.replace(
            "torch.nn.parallel.DistributedDataParallel.__init__",
            _without_devices,
            "DistributedDataParallel refuses device_ids for a module on the CPU",
            expects=("self", "module", "device_ids", "output_device"),
        )


def _with_host_tensors(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let programs read the CPU's real name in a worker, whose process ends with the loop."""

    @functools.wraps(original)
    def loop(*args: Any, **kwargs: Any) -> None:
        _C.show_as_cuda("")
        original(*args, **kwargs)

    return loop


def _without_devices(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        original(self, module, None, None, *args, **kwargs)

    return init
