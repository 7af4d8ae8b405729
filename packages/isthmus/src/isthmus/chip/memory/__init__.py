"""``torch.chip.memory``: device memory, with the names of ``torch.cuda.memory``. Sizes are in bytes.

See docs/guides/memory.md.
"""

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index
from isthmus.chip.memory.allocators import (
    allocators,
    get_allocator_backend,
    mark_communication_stream,
    set_allocator,
    step,
)
from isthmus.chip.memory.history import (
    _allocation_traceback,
    _attach_out_of_memory_observer,
    _dump_snapshot,
    _record_memory_history,
    _save_memory_usage,
    _save_segment_usage,
    _set_failure_callback,
    _snapshot,
    memory_snapshot,
)
from isthmus.chip.memory.leaks import Leak, leaks, report_leaks
from isthmus.chip.memory.metrics import prometheus
from isthmus.chip.memory.pools import MemPool, caching_allocator_alloc, caching_allocator_delete, use_mem_pool
from isthmus.chip.memory.statistics import (
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
)
from isthmus.chip.memory.trace import record_trace


def empty_cache() -> None:
    """Return unused cached memory to the driver, for other processes.

    Memory of an existing :class:`MemPool` is kept.
    """
    torch.accelerator.empty_cache()


def empty_host_cache() -> None:
    """Return unused pinned host memory to the driver."""
    _C.host_empty_cache()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of the device over all processes; cached memory counts as used."""
    return _C.memory_info(_index(device))


def device_memory_used(device: DeviceLike = None) -> int:
    """Bytes of the device in use by all processes together."""
    free, total = mem_get_info(device)
    return total - free


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limit the memory that this process may reserve to a fraction of the device.

    Args:
        fraction: in (0, 1]; default 1. Requests above the limit raise OutOfMemoryError.
        device: the current device by default.

    Raises:
        ValueError: fraction is out of range.
    """
    _C.set_memory_fraction(_index(device), float(fraction))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The fraction of the device's memory that this process may reserve."""
    return _C.memory_fraction(_index(device))


def ipc_collect() -> None:
    """Free the memory of sent tensors that their receivers have freed.

    Sending a tensor, ``empty_cache()`` and running out of memory do so too.
    """
    _C.collect_sent()
