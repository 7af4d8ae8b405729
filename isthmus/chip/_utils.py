"""Turning what users pass as a device into its index."""

from __future__ import annotations

from typing import TypeAlias

import torch

from isthmus import _C

DeviceLike: TypeAlias = torch.device | str | int | None


def _get_device_index(device: DeviceLike, optional: bool = False, allow_cpu: bool = False) -> int:
    """Index of a device of the chip.

    Args:
        device: ``"chip"``, ``"chip:1"``, ``torch.device``, an index, or None.
        optional: None, or a device without index, means the current device.
        allow_cpu: the CPU is accepted and has index -1.

    Raises:
        TypeError: it is nothing that names a device.
        ValueError: it is a device of another type, or has no index and must have one.
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
    """Index of device; the current one for None, or where it names none.

    Raises:
        TypeError, ValueError: as of :func:`_get_device_index`.
        RuntimeError: there is no such device.
    """
    index = _get_device_index(device, optional=True)
    if device is not None and not 0 <= index < _C.device_count():
        _C.init()  # says why, where no device can be used at all
        count = _C.device_count()
        there = (
            "one device is there, chip:0" if count == 1 else f"{count} devices are there (numbered from 0)"
        )
        raise RuntimeError(f"chip:{index} does not exist: {there}")
    return index
