"""Cases of copies among other work: order for each kind, kinds of host memory, overlap, more than 64 MiB."""

import mmap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from tempfile import TemporaryFile

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
    each_device,
    pattern,
    require,
    require_bytes,
    scratch,
    stream_of,
)
from isthmus.conformance.driver.order import NBYTES, enqueue_fills
from isthmus.drivers.interface import CopyKind, Status

CASES = Cases()
ROUNDS = 4
COPIES, SMALL = 64, 4099  # bytes that a driver may copy aside instead of waiting
HOST_SHAPES = [(1, 63), (3, 4097), (4095, 8195), (17, MIB + 3)]  # offset and size in bytes
DEVICE_OFFSET = 5
OVERLAPS = [(shift, nbytes) for shift in (1, 64, 4097) for nbytes in (4099, MIB + 3)]
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


@CASES.case("copy_async")
def pageable_sources_in_turn(device: Device) -> None:
    """Each of many copies from the same pageable memory has what that held at the call."""
    driver = device.driver
    data = np.zeros(SMALL, np.uint8)
    with scratch(device, NBYTES, COPIES * SMALL) as (stream, busy, address):
        for value in (1, 2):
            enqueue_fills(device, busy, value, stream)
            for i in range(COPIES):
                data[:] = pattern(SMALL, value * COPIES + i)
                copy_in(driver, address + i * SMALL, data, stream)
            data[:] = 0
            driver.stream_synchronize(stream)
            for i in range(COPIES):
                found = device.read(address + i * SMALL, SMALL)
                require_bytes(found, pattern(SMALL, value * COPIES + i), f"copy {i} of {COPIES}")


@contextmanager
def host_memory(device: Device, kind: str, content: Bytes) -> Iterator[Bytes]:
    """Yield host memory with the content: pageable, pinned, mapped (shared), or a mapped file that is read-only."""
    with ExitStack() as stack:
        if kind == "read-only":
            file = stack.enter_context(TemporaryFile())
            file.write(content.tobytes())
            file.flush()
            yield np.frombuffer(mmap.mmap(file.fileno(), content.size, access=mmap.ACCESS_READ), np.uint8)
            return
        if kind == "pinned":
            found = stack.enter_context(allocate_pinned(device.driver, content.size))
        elif kind == "mapped":
            found = np.frombuffer(mmap.mmap(-1, content.size), np.uint8)
        else:
            found = np.empty(content.size, np.uint8)
        found[:] = content
        yield found


def check_host_memory(device: Device, copy: Callable[[int, int, int, CopyKind], object]) -> None:
    """Check copies from each kind of host memory to the device and back to each kind, at odd offsets."""
    sources, targets = ("pageable", "pinned", "mapped", "read-only"), ("pageable", "pinned", "mapped")
    for offset, nbytes in HOST_SHAPES:
        part = slice(offset, offset + nbytes)
        data, before = pattern(part.stop + 64, nbytes), pattern(part.stop + 64, 1)
        expected = before.copy()
        expected[part] = data[part]
        for source, target in product(sources, targets):
            with (
                host_memory(device, source, data) as first,
                host_memory(device, target, before) as second,
                allocated(device, DEVICE_OFFSET + nbytes) as base,
            ):
                address = base + DEVICE_OFFSET
                copy(address, first[part].ctypes.data, nbytes, CopyKind.HOST_TO_DEVICE)
                copy(second[part].ctypes.data, address, nbytes, CopyKind.DEVICE_TO_HOST)
                device.driver.device_synchronize()
                what = f"{nbytes} bytes at offset {offset}, from {source} to {target} memory"
                require_bytes(second.copy(), expected, what)


@CASES.case("copy")
def copy_host_memory(device: Device) -> None:
    """copy() copies from and to any host memory: pageable, pinned, mapped, from a read-only file, at any offset."""
    check_host_memory(device, device.driver.copy)


@CASES.case("copy_async")
def copy_async_host_memory(device: Device) -> None:
    """copy_async() copies from and to host memory as copy() does: of any kind, at any offset."""
    with stream_of(device) as stream:
        check_host_memory(device, lambda *arguments: device.driver.copy_async(*arguments, stream))


@CASES.case("host_allocate", devices=2)
def pinned_for_every_device(device: Device) -> None:
    """Pinned memory can be copied from and to on every device, whichever was current when it was allocated."""
    driver = device.driver
    for made in each_device(driver):
        with allocate_pinned(driver, 2 * MIB) as host:
            for used in each_device(driver):
                host[:MIB], host[MIB:] = pattern(MIB, used), 0
                with stream_of(device) as stream:
                    address = driver.result_of("memory_allocate", MIB)
                    copy_in(driver, address, host[:MIB], stream)
                    copy_out(driver, host[MIB:], address, stream)
                    driver.stream_synchronize(stream)
                    driver.memory_free(address)
                require_bytes(
                    host[MIB:], pattern(MIB, used), f"pinned on device {made}, used on device {used}"
                )
            driver.device_set(made)


def check_overlap(device: Device, copy: Callable[[int, int, int, CopyKind], Status]) -> None:
    """Check that a copy within overlapping memory has the result of memmove(), or is refused and copies nothing."""
    for (shift, nbytes), is_forward in product(OVERLAPS, (True, False)):
        data = pattern(shift + nbytes, shift)
        source, target = (0, shift) if is_forward else (shift, 0)
        with allocated(device, data.size) as base:
            device.write(base, data)
            found = copy(base + target, base + source, nbytes, CopyKind.DEVICE_TO_DEVICE)
            expected = data.copy()
            if found == Status.OK:
                expected[target : target + nbytes] = data[source : source + nbytes]
            what = f"{nbytes} bytes from offset {source} to {target} ({found.name})"
            require(found == Status.OK or device.driver.last_error() != "", f"{what}: no message")
            require_bytes(device.read(base, data.size), expected, what)
            device.write(base, data)
            found = copy(base, base, data.size, CopyKind.DEVICE_TO_DEVICE)
            require(found == Status.OK, f"a copy onto itself: {found.name}")
            require_bytes(device.read(base, data.size), data, "after a copy onto itself")


@CASES.case("copy")
def copy_overlapping(device: Device) -> None:
    """A copy() within overlapping memory has the result of memmove(), or is refused and copies nothing."""
    check_overlap(device, lambda *arguments: device.driver.status("copy", *arguments))


@CASES.case("copy_async")
def copy_async_overlapping(device: Device) -> None:
    """A copy_async() within overlapping memory has the result of memmove(), or is refused and copies nothing."""
    with stream_of(device) as stream:

        def copy(to: int, source: int, nbytes: int, kind: CopyKind) -> Status:
            found = device.driver.status("copy_async", to, source, nbytes, kind, stream)
            if found == Status.OK:
                device.driver.stream_synchronize(stream)
            return found

        check_overlap(device, copy)


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
