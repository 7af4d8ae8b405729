"""Devices: count, current device, properties."""

from typing import Any

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _get_device_index, _index
from isthmus.chip.fork import refuse_fork


def device_count() -> int:
    """Number of devices; 0 if the driver cannot be used. Initializes the driver; never raises.

    A process forked after the first use of the chip cannot use it, but gets the number of its parent, as with CUDA.
    """
    return _C.device_count()


def is_available() -> bool:
    """Whether a device is available, as counted by :func:`device_count`."""
    return _C.device_count() > 0


def current_device() -> int:
    """Index of this thread's current device.

    Raises:
        RuntimeError: this process was forked after the first use of the chip.
    """
    refuse_fork()
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Make device current on this thread; a no-op for a negative index."""
    index = _get_device_index(device, optional=False) if device is not None else -1
    if index >= 0:
        _C.set_device(index)


def _exchange_device(device: int) -> int:
    return _C.exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    return _C.exchange_device(device)


class device:
    """Context manager that makes a device current and restores the previous one.

    Args:
        device: device or index; None or a negative index is a no-op.
    """

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(self, *_: object) -> None:
        _C.exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of a tensor or storage current; a no-op if it is not on the chip."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == "chip" else None)


def synchronize(device: DeviceLike = None) -> None:
    """Wait for all streams of the device; raises errors of their work."""
    _C.synchronize(_index(device))


def get_device_properties(device: DeviceLike = None) -> _C.DeviceProperties:
    """Properties of the device, such as name, memory in bytes and capability."""
    return _C.device_properties(_index(device))


def get_device_name(device: DeviceLike = None) -> str:
    """Product name."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """(major, minor) architecture number of the vendor; not comparable with CUDA's."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    """Empty: kernels come with the driver."""
    return []


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 is supported; natively if ``including_emulation`` is False."""
    return including_emulation or get_device_properties().supports_bfloat16


def is_tf32_supported() -> bool:
    """False: float32 is computed as float32."""
    return False


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether copies between the two devices bypass host memory."""
    first, second = _index(device), _index(peer_device)
    return first != second and bool(_C.driver()["functions"].get("copy_peer_async", False))


def driver() -> dict[str, Any]:
    """The open driver: name, description, path, version, delegate, and its functions."""
    return _C.driver()


def is_host_addressable() -> bool:
    """Whether CPU kernels can access the chip's memory, as on the host chip."""
    return bool(_C.driver()["delegate"] == "cpu")


def _device(index: int) -> torch.device:
    return torch.device("chip", index)
