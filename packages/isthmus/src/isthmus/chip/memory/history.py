"""Allocation history, in the format of pytorch.org/memory_viz and ``torch.cuda._memory_viz``."""

import inspect
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from torch._utils import _augment_memory_snapshot_stack_traces

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index

_OLDER_ARGUMENTS = {
    "record_context",
    "trace_alloc_max_entries",
    "trace_alloc_record_context",
    "record_context_cpp",
}
_EVENTS_OF_A_TRACE = {"alloc", "free_requested"}

_losses = 0


def losses() -> int:
    """Number of calls of :func:`_record_memory_history` that stopped, cleared or filtered the history."""
    return _losses


def _record_memory_history(
    enabled: Literal["state", "all"] | bool | None = "all", *args: Any, **kwargs: Any
) -> None:
    """Start or stop recording allocations with their stacks, on all devices and threads.

    Args:
        enabled: "all" records every event, "state" only stacks of live allocations, None stops (and keeps the
            recording). True and False mean "all" and None; with them the legacy arguments of ``torch.cuda`` are
            accepted: record_context, trace_alloc_max_entries, trace_alloc_record_context, record_context_cpp.
        context: events with a stack: None, "state" (live allocations), "alloc" (all allocations) or "all".
        stacks: "python", or "all" for C++ frames too (slow).
        max_entries: number of newest events to keep.
        device: only checked; all devices are recorded.
        clear_history: discard the previous recording.
        compile_context: ignored.
        global_record_annotations: ignored.
        skip_actions: events to skip: alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map,
            segment_unmap, oom, snapshot.

    Raises:
        ValueError: an unknown value, or max_entries is negative.
        RuntimeError: no such device.
        TypeError: unknown argument.
    """
    if isinstance(enabled, bool) and (args or not _OLDER_ARGUMENTS.isdisjoint(kwargs)):
        _record_as_before(enabled, *args, **kwargs)
    else:
        _record(enabled, *args, **kwargs)


def _record(
    enabled: Literal["state", "all"] | bool | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "python",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:
    if device is not None:
        _index(device)
    if max_entries < 0:
        raise ValueError(f"max_entries is {max_entries}; it must not be negative")
    global _losses
    keeps_all = enabled in ("all", True) and not clear_history and max_entries >= sys.maxsize
    _losses += not keeps_all or not _EVENTS_OF_A_TRACE.isdisjoint(skip_actions or ())
    if not enabled:
        _C.stop_memory_history()
        return
    if enabled not in ("all", "state", True):
        raise ValueError(f"enabled is {enabled!r}; expected 'all', 'state' or None")
    if stacks not in ("python", "all"):
        raise ValueError(f"stacks is {stacks!r}; expected 'python' or 'all'")
    _C.start_memory_history(
        enabled != "state",
        context or "",
        stacks == "all",
        min(max_entries, sys.maxsize),
        clear_history,
        list(skip_actions or ()),
    )


def _record_as_before(
    enabled: bool,
    record_context: bool = True,
    trace_alloc_max_entries: int = 1,
    trace_alloc_record_context: bool = False,
    device: DeviceLike = None,
    record_context_cpp: bool = False,
    **others: Any,
) -> None:
    """Legacy arguments of ``torch.cuda``, accepted if ``enabled`` is a bool."""
    context: Literal["alloc", "state"] | None = "state" if record_context else None
    if trace_alloc_record_context:
        context = "alloc"
    stacks: Literal["all", "python"] = "all" if record_context_cpp else "python"
    _record(enabled, context, stacks, trace_alloc_max_entries, device, **others)


setattr(_record_memory_history, "__signature__", inspect.signature(_record))  # noqa: B010  as in torch.cuda


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Memory state of all devices, and the recorded events.

    Returns:
        ``segments``: a list of dictionaries with device, address, total_size, allocated_size, active_size,
        requested_size, stream, segment_type ("small" or "large"), segment_pool_id, is_expandable, frames, and
        ``blocks``, each with address, size, requested_size, state ("active_allocated", "active_pending_free" while
        another stream uses it, "inactive") and frames.
        ``device_traces``: for each device, a list of events with action, addr (of "oom": device_free), size, stream,
        time_us (since 1970), pool_id and frames.
        ``allocator_settings``: name and options of the allocator.
        Frames have filename, line and name, innermost first.
    """
    found = _C.memory_snapshot(True)
    if augment_with_fx_traces:
        found = _augment_memory_snapshot_stack_traces(found)  # type: ignore[arg-type,assignment]
    return found


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """Segments of all devices, as in :func:`_snapshot`; of one MemPool with ``mempool_id``."""
    segments: list[dict[str, Any]] = _C.memory_snapshot(False)["segments"]
    if mempool_id in (None, (0, 0)):
        return segments
    return [segment for segment in segments if segment["segment_pool_id"] == tuple(mempool_id or ())]


def _dump_snapshot(
    filename: str | os.PathLike[str] = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write :func:`_snapshot` to a file (mode 0640) for pytorch.org/memory_viz. Raises OSError."""
    _write(filename, pickle.dumps(_snapshot(augment_with_fx_traces=augment_with_fx_traces)))


def _save_segment_usage(filename: str = "output.svg", snapshot: Any = None) -> None:
    """Write a flame graph of the segments, with PyTorch's script."""
    from torch.cuda._memory_viz import segments

    _write(filename, segments(_snapshot() if snapshot is None else snapshot).encode())


def _save_memory_usage(filename: str = "output.svg", snapshot: Any = None) -> None:
    """Write a flame graph of memory by stack, with PyTorch's script."""
    from torch.cuda._memory_viz import memory

    _write(filename, memory(_snapshot() if snapshot is None else snapshot).encode())


def _write(filename: str | os.PathLike[str], content: bytes) -> None:
    from isthmus_common.files import write_file

    try:
        write_file(Path(filename), [content])
    except OSError as error:
        error.filename = os.fspath(filename)  # not the temporary file
        raise


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """Stack of the allocation that starts at this address; None if not recorded."""
    return _C.allocation_traceback(data_ptr)


def _attach_out_of_memory_observer(observer: Callable[[int, int, int, int], object]) -> None:
    """Call observer(device, bytes requested, bytes allocated, bytes free) before OutOfMemoryError is raised."""
    _C.observe_out_of_memory(observer)


def _set_failure_callback(callback: Callable[[int, int], bool]) -> None:
    """Set a function called before an allocation fails: callback(device, bytes) returns whether it freed any.

    The allocation is then tried again. The callback runs on the allocating thread, also in the middle of a kernel
    that the CPU computes for the chip. A later callback replaces it.
    """
    _C.set_failure_callback(callback)
