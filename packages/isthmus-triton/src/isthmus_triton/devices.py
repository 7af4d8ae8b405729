"""Devices whose memory the CPU addresses: where a tensor is, and the stream on which its kernels run."""

from __future__ import annotations

from typing import Any

import torch

from isthmus_triton import npu


def accelerators() -> set[torch.device]:
    """The current device of PyTorch's accelerator, if there is one."""
    device = torch.accelerator.current_accelerator(check_available=True)
    return {torch.device(device.type, torch.accelerator.current_device_index())} if device else set()


def current_stream(device: torch.device) -> Any:
    """The current stream of a device, which launches programs."""
    if device.type == "npu":
        return npu.current_stream(device)
    return torch.get_device_module(device).current_stream(device)


def reports_failures(device: torch.device) -> bool:
    """Whether a wait for a stream of a device raises what its programs return."""
    return device.type != "npu"


def host_address(tensor: torch.Tensor) -> int:
    """Where the CPU finds a tensor's first element."""
    if tensor.device.type in ("cpu", "npu"):
        return tensor.data_ptr()
    from isthmus import _C

    address: int = _C.as_host(tensor.detach()).data_ptr()
    return address


def is_in_host_call() -> bool:
    """Whether this thread runs compiled code of the CPU, whose tensors are the chip's."""
    from isthmus.chip.compile import host_call

    return host_call.state.is_running
