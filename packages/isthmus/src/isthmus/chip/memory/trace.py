"""Record allocations as a trace for ``isthmus memory replay``."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index
from isthmus_common import tools

_SKIPPED = [
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
]
_ALLOC = 0  # action of the core


@contextmanager
def record_trace(path: str | Path, device: DeviceLike = None, *, model: str = "") -> Iterator[None]:
    """Record the allocations of a device inside the block and write the trace on exit.

    Existing allocations come first, as if allocated at the start. :func:`step` marks the ends of steps.

    Args:
        path: file to write, mode 0640.
        device: the current device by default.
        model: name of the model, for the header of the trace.

    Raises:
        RuntimeError: memory history is already on.
        OSError: the file cannot be written.
    """
    write = tools.find("allocation_trace", "isthmus")(Path(path), model)
    if _C.memory_history_is_on():
        raise RuntimeError(
            "record_trace: memory history is already on; stop it with _record_memory_history(None)"
        )
    index = _index(device)
    held = _live_allocations(index)
    _C.start_memory_history(True, "", False, sys.maxsize, True, _SKIPPED)
    try:
        yield
    finally:
        _C.stop_memory_history()
    write(_events(index, held))


def _live_allocations(device: int) -> list[tuple[int, int, int, int]]:
    """Live allocations, as allocation events."""
    return [
        (_ALLOC, block["address"], block["requested_size"], segment["stream"])
        for segment in _C.memory_snapshot(False)["segments"]
        if segment["device"] == device
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    ]


def _events(device: int, held: list[tuple[int, int, int, int]]) -> list[tuple[int, ...]]:
    """The allocations that were held when recording began, then the recorded events."""
    columns = (column.tolist() for column in _C.memory_events(device))
    events = list(zip(*columns, strict=True))
    first = {address: action for action, address, *_ in reversed(events)}
    # Another thread may have freed one before recording started, and its address was reused.
    still = [event for event in held if first.get(event[1]) != _ALLOC]
    return [*still, *events]
