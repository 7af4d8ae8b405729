"""Convert device arguments to device indices, and names of operators to operators."""

from typing import TypeAlias

import torch
from torch._ops import OpOverload

from isthmus import _C

DeviceLike: TypeAlias = torch.device | str | int | None


def _get_device_index(device: DeviceLike, optional: bool = False, allow_cpu: bool = False) -> int:
    """Index of a device of the chip.

    Args:
        device: ``"chip"``, ``"chip:1"``, ``torch.device``, an index, or None.
        optional: accept None or a device without index, for the current device.
        allow_cpu: accept the CPU, as index -1.

    Raises:
        TypeError: not a device.
        ValueError: a device of another type, or without a required index.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if device is not None and not isinstance(device, torch.device):
        raise TypeError(f"expected a device such as 'chip:0', or an index, got {device!r}")
    if device is not None:
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "chip":
            raise ValueError(f"expected a device of the chip, such as 'chip:0', got {str(device)!r}")
        if device.index is not None:
            return device.index
    if not optional:
        raise ValueError(f"expected a device with an index, such as 'chip:0', got {str(device)!r}")
    return _C.current_device()


def _index(device: DeviceLike) -> int:
    """Index of a device; the current device for None or a device without index.

    Raises:
        TypeError, ValueError: as :func:`_get_device_index`.
        RuntimeError: no such device.
    """
    index = _get_device_index(device, optional=True)
    if device is not None and not 0 <= index < _C.device_count():
        _C.init()  # raises if no device is usable, with the reason
        count = _C.device_count()
        available = "1 device available, chip:0" if count == 1 else f"{count} devices available, from chip:0"
        raise RuntimeError(f"chip:{index} does not exist: {available}")
    return index


def overload(name: str) -> OpOverload | None:
    """Return the operator of a full name, such as "aten::add.Tensor" or "aten::clone"; None if there is none."""
    namespace, _, rest = name.partition("::")
    packet, _, kind = rest.partition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return getattr(found, kind or "default", None)
