"""Counters of device memory and of pinned host memory, under the keys of ``torch.cuda``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index


def memory_stats(device: DeviceLike = None) -> OrderedDict[str, Any]:
    """Statistics of the caching allocator, under the keys of ``torch.cuda.memory_stats``.

    ``allocated_bytes.all.current``, ``.peak``, ``.allocated`` and ``.freed`` and so on; empty before the
    first use of the chip. Those of a MemPool are ``reserved_bytes_by_private_pools.0_1.all.current``.
    """
    return OrderedDict(sorted(_flat("", memory_stats_as_nested_dict(device))))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """:func:`memory_stats` as nested dictionaries; MemPools are keyed by their ids."""
    if not _C.is_initialized():
        return {}
    index = _index(device)
    stats: dict[str, Any] = torch._C._accelerator_getDeviceStats(index)
    # No policy here refuses before it has tried: always 0.
    stats.setdefault("num_oom_rejections", 0)
    stats["reserved_bytes_by_private_pools"] = _C.private_pool_stats(index)
    return stats


def host_memory_stats() -> OrderedDict[str, Any]:
    """Statistics of pinned host memory, under the keys of ``torch.cuda.host_memory_stats``.

    ``allocated_bytes`` and ``allocations`` count blocks that the driver gave, used or cached; ``active_bytes`` and
    ``active_requests`` those handed out and not yet free for reuse; times are in microseconds.
    """
    return OrderedDict(sorted(_flat("", host_memory_stats_as_nested_dict())))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """:func:`host_memory_stats` as nested dictionaries; empty before the first use of the chip."""
    return _C.host_memory_stats() if _C.is_initialized() else {}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield prefix, value
        return
    for key, inner in value.items():
        name = "_".join(map(str, key)) if isinstance(key, tuple) else str(key)
        yield from _flat(f"{prefix}.{name}" if prefix else name, inner)


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


def memory_cached(device: DeviceLike = None) -> int:
    """The older name of :func:`memory_reserved`."""
    return memory_reserved(device)


def max_memory_cached(device: DeviceLike = None) -> int:
    """The older name of :func:`max_memory_reserved`."""
    return max_memory_reserved(device)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Let peaks start again from the present values."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """The older name of :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """The older name of :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Let totals (``.allocated``, ``.freed``, counts) start again from 0."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def reset_peak_host_memory_stats() -> None:
    """Let peaks of pinned memory start again from the present values."""
    _C.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Let totals of pinned memory start again from 0."""
    _C.reset_accumulated_host_memory_stats()


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
        f"chip:{index} memory: OOMs {ooms}, retries after emptying the cache {retries}",
        f"{'':24}" + "".join(f"{column:>14}" for column in ("now", "peak", "total in", "total out")),
    ]
    for key, title in _ROWS:
        pools = _POOLS[:1] if abbreviated else _POOLS
        for pool, pool_title in pools:
            if f"{key}.{pool}.current" in stats:
                lines.append(_row(pool_title or title, key, [stats[f"{key}.{pool}.{c}"] for c in _COLUMNS]))
    for key, title in (
        ("oversize_allocations", "oversize allocations"),
        ("oversize_segments", "oversize segments"),
    ):
        if f"{key}.current" in stats:
            lines.append(_row(title, key, [stats[f"{key}.{c}"] for c in _COLUMNS]))
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
