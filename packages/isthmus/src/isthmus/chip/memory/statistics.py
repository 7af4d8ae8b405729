"""Statistics of device memory and pinned host memory, with the keys of ``torch.cuda``."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index
from isthmus_common.units import format_size


def memory_stats(device: DeviceLike = None) -> OrderedDict[str, Any]:
    """Statistics of the caching allocator, with the keys of ``torch.cuda.memory_stats``.

    Such as ``allocated_bytes.all.current``, ``.peak``, ``.allocated`` and ``.freed``; for a MemPool
    ``reserved_bytes_by_private_pools.0_1.all.current``. Empty before the first use of the chip.
    """
    return OrderedDict(sorted(_flat("", memory_stats_as_nested_dict(device))))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """:func:`memory_stats` as nested dictionaries; MemPools are keyed by their ids."""
    if not _C.is_initialized():
        return {}
    index = _index(device)
    stats: dict[str, Any] = torch._C._accelerator_getDeviceStats(index)
    # Always 0: no allocator rejects a request without trying.
    stats.setdefault("num_oom_rejections", 0)
    stats["reserved_bytes_by_private_pools"] = _C.private_pool_stats(index)
    return stats


def host_memory_stats() -> OrderedDict[str, Any]:
    """Statistics of pinned host memory, with the keys of ``torch.cuda.host_memory_stats``.

    ``allocated_bytes`` and ``allocations`` count blocks reserved from the driver; ``active_bytes`` and
    ``active_requests`` those in use. Times are in microseconds.
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
    """Bytes currently allocated by tensors."""
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Peak bytes allocated by tensors since process start or :func:`reset_peak_memory_stats`."""
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes currently reserved by the caching allocator."""
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Peak bytes reserved by the caching allocator since process start or :func:`reset_peak_memory_stats`."""
    return torch.accelerator.max_memory_reserved(_index(device))


def memory_cached(device: DeviceLike = None) -> int:
    """Deprecated name of :func:`memory_reserved`."""
    return memory_reserved(device)


def max_memory_cached(device: DeviceLike = None) -> int:
    """Deprecated name of :func:`max_memory_reserved`."""
    return max_memory_reserved(device)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Reset peaks to the current values."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Deprecated name of :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """Deprecated name of :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Reset totals (``.allocated``, ``.freed``, counts) to 0."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def reset_peak_host_memory_stats() -> None:
    """Reset peaks of pinned memory to the current values."""
    _C.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Reset totals of pinned memory to 0."""
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
    """Human-readable table of :func:`memory_stats`.

    Args:
        device: the current device by default.
        abbreviated: omit the large and small pools.
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
    show = format_size if key.endswith("_bytes") else str
    return f"{title:24}" + "".join(f"{show(value):>14}" for value in values)
