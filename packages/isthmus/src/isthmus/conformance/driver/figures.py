"""Cases of figures that must agree with each other: memory of every device, elapsed times; and of invalid frees."""

import ctypes
from contextlib import ExitStack
from functools import partial
from itertools import pairwise

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    MIB,
    Cases,
    allocate_pinned,
    allocated,
    each_device,
    pattern,
    require,
    require_bytes,
    require_status,
    scratch,
)
from isthmus.conformance.driver.memory import require_once
from isthmus.conformance.driver.order import NBYTES, TIMING
from isthmus.drivers.driver import Driver
from isthmus.drivers.interface import Status

CASES = Cases()
EVENTS = 9
RESOLUTION = 0.01  # milliseconds, of event_elapsed()


def free_of(driver: Driver) -> list[int]:
    """Return the free memory of every device; the last is current afterwards."""
    return [driver.memory()[0] for _ in each_device(driver)]


@CASES.case("device_memory")
def memory_of_every_device(device: Device) -> None:
    """Each device has its own figures: only its free memory falls by an allocation."""
    driver = device.driver

    def only_its_own(index: int) -> bool:
        before = free_of(driver)
        driver.device_set(index)
        nbytes = max(MIB, min(32 * MIB, before[index] // 8))
        address = driver.result_of("memory_allocate", nbytes)
        taken = [was - now for was, now in zip(before, free_of(driver), strict=True)]
        driver.memory_free(address)
        return nbytes <= taken.pop(index) <= nbytes + 16 * MIB and not any(taken)

    for index in range(driver.count()):
        require_once(
            partial(only_its_own, index),
            f"an allocation on device {index} did not lower its free memory by its size, or that of another too",
        )


@CASES.case("device_memory")
def totals_agree(device: Device) -> None:
    """device_memory()'s total is 3/4 to 1 of total_memory on every device, and allocations do not change it."""
    driver = device.driver
    for index in each_device(driver):
        free, total = driver.memory()
        most = driver.properties(index).total_memory
        figures = f"device {index}: free {free}, total {total}, total_memory {most}"
        require(free <= total <= most and total >= 3 * most // 4, figures)
        address = driver.result_of("memory_allocate", MIB)
        found = driver.memory()[1]
        driver.memory_free(address)
        require(found == total, f"device {index}: total {total}, and {found} after an allocation")


@CASES.case("device_memory")
def free_memory_is_there(device: Device) -> None:
    """Most of the free memory can be allocated."""

    nbytes = device.driver.memory()[0] // 8
    with ExitStack() as stack:
        for i in range(6):
            address = ctypes.c_void_p()
            found = device.driver.status("memory_allocate", nbytes, ctypes.byref(address))
            require(
                found == Status.OK,
                f"allocation {i + 1} of 6 of an eighth of it, {nbytes} bytes: {found.name}",
            )
            stack.callback(device.driver.memory_free, address.value)


@CASES.case("event_elapsed")
def elapsed_adds_up(device: Device) -> None:
    """The times between successive events add up to the time from the first to the last."""
    driver = device.driver
    with scratch(device, NBYTES, events=EVENTS, flags=TIMING) as (stream, *events, address):
        for event in events:
            driver.event_record(event, stream)
            driver.set_async(address, 1, NBYTES // 8, stream)
        driver.stream_synchronize(stream)
        parts = [driver.elapsed(*pair) for pair in pairwise(events)]
        whole = driver.elapsed(events[0], events[-1])
        require(min(parts) >= 0, f"an event precedes the one recorded before it by {-min(parts)} ms")
        off = abs(sum(parts) - whole)
        require(
            off <= EVENTS * RESOLUTION + 0.01 * whole,
            f"{len(parts)} times add up to {sum(parts)}, not {whole} ms",
        )


def check_frees(device: Device, function: str, addresses: dict[str, int]) -> None:
    """Require that a free of these addresses fails and changes neither an allocation nor the free memory."""

    def refuses(address: int) -> bool:
        before = device.driver.memory()[0]
        require_status(device.driver, Status.INVALID_ARGUMENT, function, address)
        return device.driver.memory()[0] == before

    for what, address in addresses.items():
        with allocated(device, MIB) as other:
            device.write(other, pattern(MIB))
            require_once(partial(refuses, address), f"{function}() of {what} changed the free memory")
            require_bytes(device.read(other, MIB), pattern(MIB), f"memory after {function}() of {what}")


@CASES.case("memory_free")
def free_twice(device: Device) -> None:
    """Freeing memory again returns ISTHMUS_INVALID_ARGUMENT and changes nothing."""
    address = device.allocate(MIB)
    device.free(address)
    # Nothing is allocated in between: the address could be in use again.
    require_status(device.driver, Status.INVALID_ARGUMENT, "memory_free", address)
    with allocated(device, MIB) as first, allocated(device, MIB) as second:
        device.write(first, pattern(MIB, 1))
        device.write(second, pattern(MIB, 2))
        require_bytes(device.read(first, MIB), pattern(MIB, 1), "one of two later allocations")


@CASES.case("memory_free")
def free_foreign(device: Device) -> None:
    """An address that memory_allocate() did not return gives ISTHMUS_INVALID_ARGUMENT and changes nothing."""
    ordinary = np.zeros(4096, np.uint8)
    with allocated(device, MIB) as address, allocate_pinned(device.driver, MIB) as host:
        foreign = {"pageable memory": ordinary.ctypes.data, "pinned memory": host.ctypes.data}
        check_frees(device, "memory_free", {"an address inside an allocation": address + 4096, **foreign})


@CASES.case("host_free")
def free_pinned_twice(device: Device) -> None:
    """Freeing pinned memory again returns ISTHMUS_INVALID_ARGUMENT and changes nothing."""
    address = device.driver.result_of("host_allocate", MIB)
    device.driver.host_free(address)
    require_status(device.driver, Status.INVALID_ARGUMENT, "host_free", address)
    with allocate_pinned(device.driver, MIB) as host:
        host[:] = pattern(MIB)
        require_bytes(host, pattern(MIB), "pinned memory afterwards")


@CASES.case("host_free")
def free_foreign_pinned(device: Device) -> None:
    """An address that host_allocate() did not return gives ISTHMUS_INVALID_ARGUMENT and changes nothing."""
    ordinary = np.zeros(4096, np.uint8)
    with allocated(device, MIB) as address, allocate_pinned(device.driver, MIB) as host:
        foreign = {"pageable memory": ordinary.ctypes.data, "device memory": address}
        check_frees(
            device, "host_free", {"an address inside pinned memory": host.ctypes.data + 64, **foreign}
        )
