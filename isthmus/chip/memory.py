"""Memory of the chip. Every number is in bytes unless its name says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index


def memory_stats(device: DeviceLike = None) -> Mapping[str, Any]:
    """Statistics of the caching allocator, under the keys of ``torch.cuda.memory_stats``.

    ``allocated_bytes.all.current``, ``.peak``, ``.allocated`` and ``.freed`` and so on; empty before the
    first allocation.
    """
    return torch.accelerator.memory_stats(_index(device))


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors occupy now."""
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Most bytes that tensors occupied since the start or :func:`reset_peak_memory_stats`."""
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the caching allocator holds of the driver's memory now."""
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Most bytes that the caching allocator held since the start or :func:`reset_peak_memory_stats`."""
    return torch.accelerator.max_memory_reserved(_index(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Let peaks start again from the present values."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """The older name of :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Let totals (``.allocated``, ``.freed``, counts) start again from 0."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def empty_cache() -> None:
    """Give memory that no tensor uses back to the driver, so that other processes can have it."""
    torch.accelerator.empty_cache()


def empty_host_cache() -> None:
    """Give pinned host memory that no tensor uses back to the driver."""
    _C.host_empty_cache()


def host_memory_stats() -> dict[str, int]:
    """Pinned host memory: allocated_bytes, reserved_bytes, allocations, reused."""
    return _C.host_memory_stats()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of the device, over all processes; what this one has cached counts as used."""
    return _C.memory_info(_index(device))


def device_memory_used(device: DeviceLike = None) -> int:
    """Bytes of the device in use by all processes together."""
    free, total = mem_get_info(device)
    return total - free


def ipc_collect() -> None:
    """Nothing to do: the chip's tensors are not shared between processes by handle."""


_ROWS = (
    ("allocated_bytes", "allocated memory"),
    ("active_bytes", "active memory"),
    ("requested_bytes", "requested memory"),
    ("reserved_bytes", "reserved memory"),
    ("inactive_split_bytes", "not releasable memory"),
    ("allocation", "allocations"),
    ("active", "active blocks"),
    ("segment", "segments"),
    ("inactive_split", "inactive blocks"),
)
_POOLS = (("all", ""), ("large_pool", "  large pool"), ("small_pool", "  small pool"))
_COLUMNS = ("current", "peak", "allocated", "freed")


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A table of :func:`memory_stats` for people.

    Args:
        device: the current device by default.
        abbreviated: leave out the two pools.
    """
    index, stats = _index(device), memory_stats(device)
    retries, ooms = stats.get("num_alloc_retries", 0), stats.get("num_ooms", 0)
    lines = [
        f"chip:{index} memory: {ooms} out of memory, {retries} retries after emptying the cache",
        f"{'':24}" + "".join(f"{column:>14}" for column in ("now", "peak", "total in", "total out")),
    ]
    for key, title in _ROWS:
        pools = _POOLS[:1] if abbreviated else _POOLS
        for pool, pool_title in pools:
            if f"{key}.{pool}.current" in stats:
                lines.append(_row(pool_title or title, key, [stats[f"{key}.{pool}.{c}"] for c in _COLUMNS]))
    return "\n".join(lines) + "\n"


def _row(title: str, key: str, values: list[int]) -> str:
    show = _bytes if key.endswith("_bytes") else str
    return f"{title:24}" + "".join(f"{show(value):>14}" for value in values)


def _bytes(count: int) -> str:
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(size) >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"
