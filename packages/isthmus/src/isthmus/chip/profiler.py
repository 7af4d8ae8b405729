"""Pause and resume a running ``torch.profiler``, with the names of ``torch.cuda.profiler``."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def start() -> None:
    """Resume collection of the running profiler; a no-op without one."""
    _collect(True)


def stop() -> None:
    """Pause collection of the running profiler until :func:`start`."""
    _collect(False)


@contextmanager
def profile() -> Iterator[None]:
    """Collect inside the region, and pause after it."""
    start()
    try:
        yield
    finally:
        stop()


def _collect(enable: bool) -> None:
    if torch._C._autograd._profiler_enabled():
        activities = torch.profiler.supported_activities()
        torch._C._autograd._toggle_collection_dynamic(enable, activities)
