"""Cases of copies among other work: order for each kind, pageable memory, more than 64 MiB."""

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    MIB,
    Bytes,
    Cases,
    allocate_pinned,
    allocated,
    copy_in,
    copy_out,
    pattern,
    require_bytes,
    scratch,
    stream_of,
)
from isthmus.conformance.driver.order import NBYTES, enqueue_fills
from isthmus.drivers.interface import CopyKind

CASES = Cases()
ROUNDS = 4
HUGE = 64 * MIB + 3


def check_order(device: Device, kind: CopyKind) -> None:
    """Check copies between a write of their source that comes before them and one that comes after."""
    driver = device.driver
    with scratch(device, NBYTES, NBYTES) as (stream, first, second), allocate_pinned(driver, NBYTES) as host:
        address = host.ctypes.data
        source = address if kind == CopyKind.HOST_TO_DEVICE else first
        target = address if kind == CopyKind.DEVICE_TO_HOST else second

        def write(value: int) -> None:
            driver.set_async(first, value, NBYTES, stream)
            if kind == CopyKind.HOST_TO_DEVICE:
                copy_out(driver, host, first, stream)

        for value in range(1, 1 + ROUNDS):
            enqueue_fills(device, first, value, stream)
            write(value)
            driver.copy_async(target, source, NBYTES, kind, stream)
            write(100 + value)
            driver.stream_synchronize(stream)
            found = host.copy() if kind == CopyKind.DEVICE_TO_HOST else device.read(second, NBYTES)
            require_bytes(found, value, "a copy between two writes of its source")


@CASES.case("copy_async")
def to_device_in_order(device: Device) -> None:
    """A copy of pinned memory to the device runs after earlier writes to its source and before later ones."""
    check_order(device, CopyKind.HOST_TO_DEVICE)


@CASES.case("copy_async")
def to_host_in_order(device: Device) -> None:
    """A copy to pinned memory runs after earlier writes to its source and before later ones."""
    check_order(device, CopyKind.DEVICE_TO_HOST)


@CASES.case("copy_async")
def within_in_order(device: Device) -> None:
    """A copy within the device runs after earlier writes to its source and before later ones."""
    check_order(device, CopyKind.DEVICE_TO_DEVICE)


@CASES.case("copy_async")
def pageable_source(device: Device) -> None:
    """copy_async() from pageable memory has read it when it returns."""
    data = pattern(NBYTES)
    with stream_of(device) as stream, allocated(device, NBYTES) as address:
        enqueue_fills(device, address, 1, stream)
        copy_in(device.driver, address, data, stream)
        data[:] = 0
        device.driver.stream_synchronize(stream)
        require_bytes(device.read(address, NBYTES), pattern(NBYTES), "after the source was overwritten")


@CASES.case("copy_async")
def pageable_target(device: Device) -> None:
    """copy_async() to pageable memory has written it when it returns."""
    found = np.zeros(NBYTES, np.uint8)
    with stream_of(device) as stream, allocated(device, NBYTES) as address:
        enqueue_fills(device, address, 7, stream)
        copy_out(device.driver, found, address, stream)
        require_bytes(found.copy(), 7, "when the call returned")


def huge_pattern() -> Bytes:
    """Return HUGE bytes whose period is not a power of two."""
    return np.resize(pattern(MIB + 1), HUGE)


@CASES.case("copy")
def huge_copies(device: Device) -> str | None:
    """copy() copies more than 64 MiB."""
    if device.driver.memory()[0] < 3 * HUGE:
        return f"needs {3 * HUGE >> 20} MiB of free memory"
    data, back = huge_pattern(), np.zeros(HUGE, np.uint8)
    with allocated(device, HUGE) as first, allocated(device, HUGE) as second:
        device.write(first, data)
        device.driver.copy(second, first, HUGE, CopyKind.DEVICE_TO_DEVICE)
        device.read_into(back, second)
        require_bytes(back, data, "to the device, within it and back")
    return None


@CASES.case("copy_async")
def huge_work(device: Device) -> str | None:
    """copy_async() and set_async() work on more than 64 MiB."""
    driver = device.driver
    if driver.memory()[0] < 3 * HUGE:
        return f"needs {3 * HUGE >> 20} MiB of free memory"
    data = huge_pattern()
    with scratch(device, HUGE, HUGE) as (stream, first, second), allocate_pinned(driver, HUGE) as host:
        host[:] = data
        copy_in(driver, first, host, stream)
        driver.copy_async(second, first, HUGE, CopyKind.DEVICE_TO_DEVICE, stream)
        driver.set_async(first, 9, HUGE, stream)
        driver.stream_synchronize(stream)
        host[:] = 0
        copy_out(driver, host, second, stream)
        driver.stream_synchronize(stream)
        require_bytes(host, data, "to the device, within it and back")
        copy_out(driver, host, first, stream)
        driver.stream_synchronize(stream)
        require_bytes(host, 9, "the fill")
    return None
