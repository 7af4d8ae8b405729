"""Lazy initialization of the driver, on the first call that needs a device."""

from collections.abc import Callable

from isthmus import _C
from isthmus.chip import sparse_tensors as sparse
from isthmus.chip.memory.allocators import hook_optimizers


def init() -> None:
    """Initialize the driver; no-op if done.

    Raises:
        RuntimeError: the driver failed, or this process was forked after its parent initialized the driver.
    """
    _lazy_init()


def is_initialized() -> bool:
    """Whether the driver is initialized in this process."""
    return _C.is_initialized()


def _lazy_init() -> None:
    # PyTorch calls it once, before its first call that needs a device.
    _C.init()
    hook_optimizers()
    if not _C.driver()["delegate"]:
        sparse.register()


def _lazy_call(function: Callable[[], object], **_: object) -> None:
    """Initialize the driver and run function."""
    _lazy_init()
    function()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked after its parent initialized the driver."""
    return _C.in_bad_fork()
