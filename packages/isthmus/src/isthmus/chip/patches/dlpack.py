"""DLPack for the chip: ``Tensor.__dlpack__``, ``Tensor.__dlpack_device__`` and ``torch.from_dlpack``.

PyTorch exports a PrivateUse1 tensor as kDLExtDev, but does not know the renamed device, and orders streams for CUDA
alone. The protocol is that of the Python array API standard, 2024.12.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from isthmus import _C
from isthmus.chip import streams
from isthmus.chip.device import is_host_addressable
from isthmus_common.patches import Scope

_scope = Scope("chip")


def install() -> None:
    """Let chip tensors be exported and imported with the semantics of CUDA's."""
    if _scope.patches:
        return
    _scope.replace(
        "torch.Tensor.__dlpack__", _export, "chip tensors: streams, and copies to the CPU", expects=("self",)
    )
    _scope.replace(
        "torch.Tensor.__dlpack_device__", _device_of, "chip tensors are kDLExtDev; pinned memory is the CPU's"
    )
    for target in ("torch.utils.dlpack.from_dlpack", "torch.from_dlpack"):
        _scope.replace(
            target, _import, "producers on the chip get the current stream", expects=("ext_tensor",)
        )


def uninstall() -> None:
    """Restore PyTorch's functions."""
    _scope.undo()


def _export(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __dlpack__(
        self: torch.Tensor,
        *,
        stream: Any = -1,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if self.device.type != "chip" or has_torch_function_unary(self):
            return original(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
        if self.is_neg():
            raise BufferError("cannot export a tensor with the negative bit set; use tensor.resolve_neg()")
        if dl_device is not None and dl_device[0] == DLDeviceType.kDLCPU:
            return original(_on_host(self, copy), max_version=max_version)
        _order(stream, self.device)
        if copy is False and dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(
                f"cannot export a tensor on {self.device} to DLPack device {dl_device} in place"
            )
        return original(self, max_version=max_version, dl_device=dl_device, copy=copy)

    return __dlpack__


def _on_host(tensor: torch.Tensor, copy: bool | None) -> torch.Tensor:
    """A copy on the CPU; for copy=False, its own bytes, once the work of the current stream is complete."""
    if copy is not False:
        return tensor.cpu()
    if not is_host_addressable():
        raise BufferError(
            f"the CPU cannot address the memory of {tensor.device}; export with copy=None or copy=True"
        )
    if tensor.requires_grad:
        raise BufferError("cannot export a tensor that requires a gradient; use tensor.detach()")
    streams.current_stream(tensor.device).synchronize()
    return _C.as_host(tensor)


def _order(stream: Any, device: torch.device) -> None:
    """Make the consumer's stream wait for the current one.

    Args:
        stream: its native handle; None, or 1 as for CUDA, is the default stream; -1 omits the wait.
        device: of the tensor.

    Raises:
        TypeError: not an integer or None.
        ValueError: not the handle of a stream.
    """
    expected = "stream: expected the native_handle of a torch.chip.Stream, None or -1"
    if stream is not None and type(stream) is not int:
        raise TypeError(f"{expected}; got {stream!r}")
    if stream == -1:
        return
    current, consumer = streams.current_stream(device), streams.default_stream(device)
    if stream not in (None, 1, _handle(consumer)):
        if stream <= 0:
            raise ValueError(f"{expected}; got {stream}")
        consumer = streams.ExternalStream(stream, device)
    if _handle(consumer) != _handle(current):
        consumer.wait_stream(current)


def _handle(stream: torch.Stream) -> int:
    return stream.native_handle  # type: ignore[attr-defined]


def _device_of(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> tuple[DLDeviceType, int]:
        if has_torch_function_unary(self) or self.device.type not in ("chip", "cpu"):
            return original(self)
        if self.device.type == "cpu":  # PyTorch calls any pinned memory CUDA's; the capsule does not
            return DLDeviceType.kDLCPU, 0
        return DLDeviceType.kDLExtDev, self.device.index

    return __dlpack_device__


class _OnStream:
    """A producer that is asked for its tensor with the consumer's stream."""

    def __init__(self, producer: Any, device: tuple[int, int]) -> None:
        self._producer = producer
        self._device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        return self._producer.__dlpack__(stream=_handle(streams.current_stream(self._device[1])), **options)


def _import(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> torch.Tensor:
        if hasattr(ext_tensor, "__dlpack__"):
            found = ext_tensor.__dlpack_device__()
            if found[0] == DLDeviceType.kDLExtDev:
                ext_tensor = _OnStream(ext_tensor, found)
        if device is not None and torch.device(device) == torch.device("chip"):
            device = torch.device("chip", _C.current_device())
        return original(ext_tensor, device=device, copy=copy)

    return from_dlpack
