"""When the driver is initialised: at the first call that needs a device."""

from __future__ import annotations

from collections.abc import Callable

from isthmus import _C
from isthmus.chip.memory_allocators import hook_optimizers


def init() -> None:
    """Initialise the driver now; no-op when done.

    Raises:
        RuntimeError: the driver failed, or this process was forked after its parent had initialised it.
    """
    _lazy_init()


def is_initialized() -> bool:
    """Whether the driver is initialised in this process."""
    return _C.is_initialized()


def _lazy_init() -> None:
    # PyTorch calls this once, before its first call that needs a device.
    _C.init()
    hook_optimizers()


def _lazy_call(function: Callable[[], object], **_: object) -> None:
    """Run function once the driver is there, which is now."""
    _lazy_init()
    function()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had initialised the driver."""
    return _C.in_bad_fork()
