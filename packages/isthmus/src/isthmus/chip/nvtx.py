"""User ranges with the names of ``torch.cuda.nvtx``; they appear in ``torch.profiler``.

A range costs a few microseconds, with or without a profiler.
"""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd.profiler import record_function


class _ThreadRanges(threading.local):
    def __init__(self) -> None:
        self.open: list[record_function] = []


_ranges = _ThreadRanges()
_started: dict[int, record_function] = {}
_handles = itertools.count(1)


def range_push(msg: str) -> int:
    """Begin a nested range on this thread; returns its depth, from 0."""
    opened = record_function(msg)
    opened.__enter__()
    _ranges.open.append(opened)
    return len(_ranges.open) - 1


def range_pop() -> int:
    """End the innermost range of this thread; returns its depth, or -1 if none is open."""
    if not _ranges.open:
        return -1
    _ranges.open.pop().__exit__(None, None, None)
    return len(_ranges.open)


def range_start(msg: str) -> int:
    """Begin a range that any thread may end; returns a handle for :func:`range_end`."""
    opened = record_function(msg)
    opened.__enter__()
    handle = next(_handles)
    _started[handle] = opened
    return handle


def range_end(range_id: int) -> None:
    """End a range of :func:`range_start`; unknown handles are ignored."""
    opened = _started.pop(range_id, None)
    if opened is not None:
        opened.__exit__(None, None, None)


def mark(msg: str) -> None:
    """Record an instantaneous event."""
    with record_function(msg):
        pass


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Context manager and decorator: a range named ``msg.format(*args, **kwargs)``."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
