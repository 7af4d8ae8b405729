"""A job's allocations as a trace, for ``isthmus memory replay``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index

_SKIPPED = [
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
]
_ALLOC, _FREE, _STEP, _USE = 0, 1, 9, 10  # actions of the core


@contextmanager
def record_trace(path: str | Path, device: DeviceLike = None, *, model: str = "") -> Iterator[None]:
    """Record the allocations of a device inside the block and write them as a trace when it ends.

    What is held at the beginning comes first, as if allocated then. Steps end where :func:`step` says so.

    Args:
        path: file to write, mode 0640.
        device: the current device by default.
        model: what is trained, for the trace's header.

    Raises:
        RuntimeError: the history is on already.
        OSError: the file cannot be written.
    """
    if _C.memory_history_is_on():
        raise RuntimeError("record_trace: memory history is on; end it by _record_memory_history(None)")
    index = _index(device)
    held = _held(index)
    _C.start_memory_history(True, "", False, sys.maxsize, True, _SKIPPED)
    try:
        yield
    finally:
        _C.stop_memory_history()
    _write(Path(path), index, held, model)


def _held(device: int) -> list[tuple[int, int, int]]:
    """(address, bytes, stream) of what tensors hold."""
    return [
        (block["address"], block["requested_size"], segment["stream"])
        for segment in _C.memory_snapshot(False)["segments"]
        if segment["device"] == device
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    ]


def _write(path: Path, device: int, held: list[tuple[int, int, int]], model: str) -> None:
    import numpy as np

    from isthmus.memory.trace import ALLOC, FREE, STEP, USE, Trace, write

    streams: dict[int, int] = {0: 0}
    ids: dict[int, int] = {}
    rows: list[tuple[int, int, int, int]] = []
    made = 0

    def allocate(address: int, size: int, stream: int) -> None:
        nonlocal made
        ids[address] = made
        rows.append((ALLOC, made, size, streams.setdefault(stream, len(streams))))
        made += 1

    for address, size, stream in held:
        allocate(address, size, stream)
    columns = (column.tolist() for column in _C.memory_events(device))
    for action, address, size, stream in zip(*columns, strict=True):
        if action == _ALLOC:
            if address in ids:  # freed between _held() and the start
                rows.append((FREE, ids[address], 0, 0))
            allocate(address, size, stream)
        elif action == _STEP:
            rows.append((STEP, 0, 0, 0))
        elif action == _FREE and address in ids:
            rows.append((FREE, ids.pop(address), 0, 0))
        elif action == _USE and address in ids:
            rows.append((USE, ids[address], streams.setdefault(size, len(streams)), 0))
    kind, number, size_, stream_ = np.array(rows, np.int64).reshape(-1, 4).T
    trace = Trace(
        kind=kind.astype(np.uint8),
        id=number.astype(np.int32),
        size=np.ascontiguousarray(size_),
        stream=stream_.astype(np.int16),
        name=path.stem,
        made="recorded",
        model=model,
    )
    write(trace, path)
