"""Pausing a running ``torch.profiler``, under the names of ``torch.cuda.profiler``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def start() -> None:
    """Let the profiler that runs in this process collect again. Nothing happens where none runs."""
    _collect(True)


def stop() -> None:
    """Let the profiler that runs in this process collect nothing until :func:`start`."""
    _collect(False)


@contextmanager
def profile() -> Iterator[None]:
    """Collect within the region, and nothing after it."""
    start()
    try:
        yield
    finally:
        stop()


def _collect(enable: bool) -> None:
    if torch._C._autograd._profiler_enabled():
        activities = torch.profiler.supported_activities()
        torch._C._autograd._toggle_collection_dynamic(enable, activities)
