"""Cases of virtual memory, and of concurrent use by several threads."""

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import Cases, pattern, require, require_bytes, require_status
from isthmus.conformance.driver.memory import require_once
from isthmus.drivers import interface
from isthmus.drivers.interface import CopyKind, MemoryKind, Status

CASES = Cases()
READ_WRITE = 3  # ISTHMUS_VIRTUAL_READ_WRITE
THREADS, ROUNDS = 4, 40


def granularity(device: Device) -> int:
    """Return the unit of virtual memory in bytes."""
    found = ctypes.c_size_t()
    device.driver.virtual_granularity(ctypes.byref(found))
    return found.value


@contextmanager
def reserve_addresses(device: Device, nbytes: int) -> Iterator[int]:
    """Reserve address space for a block."""
    address = device.driver.result_of("virtual_reserve", nbytes)
    try:
        yield address
    finally:
        device.driver.virtual_release(address, nbytes)


@contextmanager
def physical(device: Device, nbytes: int) -> Iterator[int]:
    """Create physical memory for a block."""
    handle = device.driver.result_of("virtual_create", nbytes)
    try:
        yield handle
    finally:
        device.driver.virtual_destroy(handle)


@contextmanager
def map_memory(device: Device, address: int, nbytes: int, handle: int) -> Iterator[None]:
    """Map physical memory at an address for a block."""
    device.driver.virtual_map(address, nbytes, handle, READ_WRITE)
    try:
        yield
    finally:
        device.driver.virtual_unmap(address, nbytes)


@CASES.case("virtual_granularity")
def granularity_is_a_power(device: Device) -> None:
    """The granularity is a power of two."""
    unit = granularity(device)
    require(unit > 0 and unit & (unit - 1) == 0, f"it is {unit}")


@CASES.case("virtual_map")
def map_side_by_side(device: Device) -> None:
    """Two memory handles mapped side by side form one range."""
    unit = granularity(device)
    data = pattern(2 * unit)
    with (
        reserve_addresses(device, 4 * unit) as base,
        physical(device, unit) as first,
        physical(device, unit) as second,
        map_memory(device, base + unit, unit, first),
        map_memory(device, base + 2 * unit, unit, second),
    ):
        device.write(base + unit, data)
        require_bytes(device.read(base + unit, 2 * unit), data, "across the two pieces")
        found = device.driver.attributes(base + 2 * unit - 1)
        require(found == (MemoryKind.DEVICE, device.index), f"pointer_attributes() returned {found}")
        device.fill(base + unit, 4, 2 * unit)
        device.synchronize()
        require_bytes(device.read(base + unit, 2 * unit), 4, "a fill across them")


@CASES.case("virtual_unmap")
def map_elsewhere(device: Device) -> None:
    """Memory keeps its content when it is mapped at another address."""
    unit = granularity(device)
    with reserve_addresses(device, 2 * unit) as base, physical(device, unit) as handle:
        with map_memory(device, base, unit, handle):
            device.write(base, pattern(unit))
        with map_memory(device, base + unit, unit, handle):
            require_bytes(device.read(base + unit, unit), pattern(unit), "at the second address")


@CASES.case("virtual_create")
def physical_memory_counts(device: Device) -> None:
    """Physical memory counts as used until it is destroyed; reserved addresses do not."""
    unit = granularity(device)

    def counts() -> bool:
        before = device.driver.memory()[0]
        with reserve_addresses(device, 2 * unit):
            after_reserve = device.driver.memory()[0]
            with physical(device, unit):
                taken = after_reserve - device.driver.memory()[0]
        return after_reserve == before == device.driver.memory()[0] and taken >= unit

    require_once(counts, "device_memory() does not reflect it")


@CASES.case("virtual_unmap")
def unmapped_addresses(device: Device) -> None:
    """An address is device memory exactly while memory is mapped there."""
    unit = granularity(device)
    with reserve_addresses(device, unit) as base, physical(device, unit) as handle:
        with map_memory(device, base, unit, handle):
            found = device.driver.attributes(base)
            require(found == (MemoryKind.DEVICE, device.index), f"a mapped address is {found}")
        found = device.driver.attributes(base)
        require(found == (MemoryKind.UNKNOWN, -1), f"an address after virtual_unmap() is {found}")


@CASES.case("virtual_create")
def create_too_much(device: Device) -> None:
    """A size above the total returns ISTHMUS_OUT_OF_MEMORY and leaves the output unchanged."""
    unit = granularity(device)
    nbytes = (2 * device.driver.memory()[1] // unit + 1) * unit
    handle = ctypes.c_void_p(0x1234)
    require_status(device.driver, Status.OUT_OF_MEMORY, "virtual_create", nbytes, ctypes.byref(handle))
    require(handle.value == 0x1234, "it wrote to the output")


@CASES.case("host_window")
def window_out_of_range(device: Device) -> None:
    """An index out of range returns ISTHMUS_NO_DEVICE and leaves the output unchanged."""
    found = interface.structure("host_window")(bytes=77)
    require_status(device.driver, Status.NO_DEVICE, "host_window", device.driver.count(), ctypes.byref(found))
    require(found.bytes == 77, "it wrote to the output")


@CASES.case("memory_allocate")
def concurrent_use(device: Device) -> None:
    """All functions may be called from any thread at any time."""
    with ThreadPoolExecutor(THREADS) as pool:
        for result in [pool.submit(_work, device, seed) for seed in range(THREADS)]:
            result.result()


def _work(device: Device, seed: int) -> None:
    driver = device.driver
    driver.device_set(device.index)
    for i in range(ROUNDS):
        size = 4097 * (1 + i % 5) + seed
        data, back = pattern(size, seed * ROUNDS + i), np.zeros(size, np.uint8)
        stream, event = driver.result_of("stream_create", 0), driver.result_of("event_create", 0)
        first, second = driver.result_of("memory_allocate", size), driver.result_of("memory_allocate", size)
        driver.copy_async(first, data.ctypes.data, size, CopyKind.HOST_TO_DEVICE, stream)
        driver.copy_async(second, first, size, CopyKind.DEVICE_TO_DEVICE, stream)
        driver.set_async(first, seed, size, stream)
        driver.event_record(event, stream)
        driver.event_synchronize(event)
        driver.read_into(back, second)
        require_bytes(back, data, f"thread {seed}, round {i}: the copy")
        require_bytes(driver.read(first, size), seed, f"thread {seed}, round {i}: the fill")
        driver.memory_free(second)
        driver.memory_free(first)
        driver.event_destroy(event)
        driver.stream_destroy(stream)
