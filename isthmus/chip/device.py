"""Devices: how many, which is current, what they are."""

from __future__ import annotations

from typing import Any

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _get_device_index, _index
from isthmus.chip.fork import refuse_fork, warn_of_fork


def device_count() -> int:
    """Number of devices; 0 where the driver cannot be used. Initialises the driver, never raises.

    Warns, once, in a process forked after the first use of the chip, which has none.
    """
    warn_of_fork()
    return _C.device_count()


def is_available() -> bool:
    """Whether there is a device. Warns as :func:`device_count` does."""
    warn_of_fork()
    return _C.device_count() > 0


def current_device() -> int:
    """Index of this thread's current device.

    Raises:
        RuntimeError: this process was forked after the first use of the chip.
    """
    refuse_fork()
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Make device current on this thread. A negative index changes nothing."""
    index = _get_device_index(device, optional=False) if device is not None else -1
    if index >= 0:
        _C.set_device(index)


def _exchange_device(device: int) -> int:
    return _C.exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    return _C.exchange_device(device)


class device:
    """Context manager that makes a device current and puts the former one back.

    Args:
        device: device or index; None or a negative index changes nothing.
    """

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(self, *_: object) -> None:
        _C.exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that makes a tensor's or storage's device current; a no-op unless it is on the chip."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == "chip" else None)


def synchronize(device: DeviceLike = None) -> None:
    """Wait for all work of all streams of the device; raises what failed in it."""
    _C.synchronize(_index(device))


def get_device_properties(device: DeviceLike = None) -> _C.DeviceProperties:
    """Name, memory in bytes, capability and so on; the fields are those of ``isthmus._C.DeviceProperties``."""
    return _C.device_properties(_index(device))


def get_device_name(device: DeviceLike = None) -> str:
    """Product name."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """(major, minor) of the maker's own architecture number; it is not comparable with CUDA's."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    """Empty: kernels come with the driver, not with this library."""
    return []


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 works; at full rate, if emulation does not count."""
    return including_emulation or get_device_properties().supports_bfloat16


def is_tf32_supported() -> bool:
    """False: float32 is computed as float32."""
    return False


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether copies between the two devices go directly, without host memory in between."""
    first, second = _index(device), _index(peer_device)
    return first != second and bool(_C.driver()["functions"].get("copy_peer_async", False))


def driver() -> dict[str, Any]:
    """The open driver: name, description, path, version, delegate, and which functions it has."""
    return _C.driver()


def is_host_addressable() -> bool:
    """Whether CPU kernels may work on the chip's memory, as they do on the host chip."""
    return bool(_C.driver()["delegate"] == "cpu")


def _device(index: int) -> torch.device:
    return torch.device("chip", index)
