"""Inputs must not change during a call: memory that the CPU reaches is read-only, other memory is read meanwhile."""

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from isthmus.conformance.arrays import Array
from isthmus.conformance.device import Device
from isthmus.conformance.memory import Image
from isthmus.drivers.driver import Driver, DriverCallError
from isthmus.drivers.interface import Status

_mprotect = ctypes.CDLL(None).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@contextmanager
def read_only(image: Image, address: int) -> Iterator[None]:
    """Make the pages of an image's inputs read-only, so that a write ends the process with SIGSEGV.

    Args:
        image: the image; its guard zones are at least a page.
        address: where the CPU reaches the image. Memory that cannot be protected stays writable.
    """
    page = mmap.PAGESIZE
    start = (address + image.inputs.start) // page * page
    nbytes = -(-(address + image.inputs.stop) // page) * page - start
    protected = bool(image.inputs) and _mprotect(start, nbytes, mmap.PROT_READ) == 0
    try:
        yield
    finally:
        if protected:
            _mprotect(start, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)


def watch(device: Device, image: Image, address: int, before: Array) -> str:
    """Compare the inputs again and again while the default stream is busy; report a change in one line, or "".

    A change that is undone between two reads is not seen.

    Raises:
        DriverCallError: the work failed, and the query says so in place of a synchronization.
    """
    inputs = slice(image.inputs.start, image.inputs.stop)
    during = before.copy()
    while image.inputs and _busy(device.driver):
        device.read_into(during[inputs], address + inputs.start)
        if not np.array_equal(during[inputs], before[inputs]):
            return f"{image.describe_intrusion(before, during)} (during the call)"
    return ""


def _busy(driver: Driver) -> bool:
    status = driver.status("stream_query", 0)
    if status not in (Status.OK, Status.NOT_READY):
        raise DriverCallError("stream_query", status, driver.last_error())
    return status == Status.NOT_READY
