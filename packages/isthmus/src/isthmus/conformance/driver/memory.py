"""Cases of device memory, pinned memory and addresses."""

import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    MIB,
    Cases,
    allocate_pinned,
    allocated,
    each_device,
    on_thread,
    pattern,
    require,
    require_bytes,
    require_status,
)
from isthmus.conformance.driver.devices import current_device
from isthmus.drivers.interface import MemoryKind, Status

CASES = Cases()
ODD_SIZES = (1, 3, 511, 513, 4097, MIB + 1)
UNTOUCHED = 0x1234
ATTEMPTS = 5  # other processes may use the device at the same time


def free_bytes(device: Device) -> int:
    """Return the free memory of the device."""
    return device.driver.memory()[0]


def require_once(holds: Callable[[], bool], message: str) -> None:
    """Raise Violation unless one of several attempts holds: other processes disturb some, a defect all."""
    require(any(holds() for _ in range(ATTEMPTS)), message)


@CASES.case("memory_allocate")
def alignment(device: Device) -> None:
    """Allocations are aligned to memory_alignment."""
    with ExitStack() as stack:
        for nbytes in ODD_SIZES * 2:
            address = stack.enter_context(allocated(device, nbytes))
            require(address % device.alignment == 0, f"{nbytes} bytes are at {address:#x}")


@CASES.case("memory_allocate")
def allocations_are_disjoint(device: Device) -> None:
    """Allocations store all their bytes and do not overlap."""
    contents = {device.allocate(size): pattern(size, seed) for seed, size in enumerate(ODD_SIZES * 2)}
    for address, content in contents.items():
        device.write(address, content)
    for address, content in contents.items():
        require_bytes(device.read(address, content.size), content, f"{content.size} bytes at {address:#x}")
        device.free(address)


@CASES.case("memory_allocate")
def allocate_nothing(device: Device) -> None:
    """0 bytes returns ISTHMUS_INVALID_ARGUMENT and leaves the output unchanged."""
    pointer = ctypes.c_void_p(UNTOUCHED)
    require_status(device.driver, Status.INVALID_ARGUMENT, "memory_allocate", 0, ctypes.byref(pointer))
    require(pointer.value == UNTOUCHED, "it wrote to the output")


@CASES.case("memory_allocate")
def allocate_too_much(device: Device) -> None:
    """A size above the total returns ISTHMUS_OUT_OF_MEMORY; the device stays usable and loses no memory."""
    total = device.driver.memory()[1]

    def fails_without_loss(nbytes: int) -> bool:
        before = free_bytes(device)
        pointer = ctypes.c_void_p(UNTOUCHED)
        require_status(device.driver, Status.OUT_OF_MEMORY, "memory_allocate", nbytes, ctypes.byref(pointer))
        require(pointer.value == UNTOUCHED, f"for {nbytes} bytes it wrote to the output")
        return free_bytes(device) >= before

    for nbytes in (total + 1, 2 * total, 1 << 60):
        require_once(
            partial(fails_without_loss, nbytes), f"after {nbytes} bytes were refused, less memory is free"
        )
    with allocated(device, MIB) as address:
        device.write(address, pattern(MIB))
        require_bytes(device.read(address, MIB), pattern(MIB), "after a failure")


@CASES.case("device_memory")
def accounting(device: Device) -> None:
    """Free memory falls by the allocated size, and rises when it is freed."""
    nbytes = min(32 * MIB, device.driver.memory()[1] // 8)

    def falls_and_rises() -> bool:
        before = free_bytes(device)
        with allocated(device, nbytes):
            taken = before - free_bytes(device)
        return nbytes <= taken <= nbytes + 16 * MIB and free_bytes(device) == before

    require_once(falls_and_rises, f"device_memory() does not reflect an allocation of {nbytes} bytes")


@CASES.case("memory_free")
def no_leak(device: Device) -> None:
    """memory_free() frees all memory of an allocation."""

    def returns() -> bool:
        before = free_bytes(device)
        for nbytes in (1, 4097, MIB) * 100:
            device.free(device.allocate(nbytes))
        return free_bytes(device) >= before

    require_once(returns, "after 300 allocations were freed, less memory is free than before")


@CASES.case("memory_free")
def free_null(device: Device) -> None:
    """Null may be freed."""
    device.driver.memory_free(None)


@CASES.case("memory_free")
def free_elsewhere(device: Device) -> None:
    """Memory may be freed on any thread, with any current device."""
    address = device.allocate(MIB)

    def free() -> None:
        device.driver.device_set(device.driver.count() - 1)
        device.free(address)

    on_thread(free)


@CASES.case("memory_free", devices=2)
def free_keeps_the_current_device(device: Device) -> None:
    """memory_allocate() and memory_free() leave the current device, also for memory of another."""
    driver = device.driver
    others = [index for index in range(driver.count()) if index != device.index]
    address = driver.result_of("memory_allocate", MIB)
    driver.device_set(others[0])
    own = driver.result_of("memory_allocate", MIB)
    for name, freed in (("its", own), ("the first", address)):
        driver.memory_free(freed)
        found = current_device(driver)
        require(found == others[0], f"{found} after freeing {name} device's memory, not {others[0]}")


@CASES.case("host_allocate")
def pinned_memory(device: Device) -> None:
    """Pinned memory is aligned to 64 bytes, and the CPU can read and write it."""
    for nbytes in ODD_SIZES:
        with allocate_pinned(device.driver, nbytes) as host:
            require(host.ctypes.data % 64 == 0, f"{nbytes} bytes are at {host.ctypes.data:#x}")
            host[:] = pattern(nbytes)
            require_bytes(host, pattern(nbytes), f"{nbytes} bytes of pinned memory")


@CASES.case("pointer_attributes")
def attributes_of_device_memory(device: Device) -> None:
    """pointer_attributes() of every address in an allocation returns device memory and its device."""
    driver = device.driver
    for index in each_device(driver):
        address = driver.result_of("memory_allocate", 4097)
        for offset in (0, 1, 2048, 4096):
            found, expected = driver.attributes(address + offset), (MemoryKind.DEVICE, index)
            require(found == expected, f"at offset {offset} of 4097: {found}, expected {expected}")
        driver.memory_free(address)


@CASES.case("pointer_attributes")
def attributes_of_host_memory(device: Device) -> None:
    """pointer_attributes() distinguishes pinned from other host memory; both have device -1."""
    with allocate_pinned(device.driver, 4097) as host:
        for offset in (0, 4096):
            found = device.driver.attributes(host.ctypes.data + offset)
            require(found == (MemoryKind.PINNED, -1), f"pinned memory at offset {offset} is {found}")
    with allocate_pinned(device.driver, 4 * MIB) as host:
        found = device.driver.attributes(host.ctypes.data + host.nbytes)
        require(found == (MemoryKind.UNKNOWN, -1), f"the address after pinned memory is {found}")
    ordinary = np.zeros(64, np.uint8)
    for address in (ordinary.ctypes.data, 0, 1):
        found = device.driver.attributes(address)
        require(found == (MemoryKind.UNKNOWN, -1), f"address {address:#x} of the host is {found}")


@CASES.case("pointer_attributes")
def attributes_of_freed_memory(device: Device) -> None:
    """pointer_attributes() of an address outside all allocations, freed ones included, returns unknown memory."""
    held = [device.allocate(4 * MIB) for _ in range(4)]
    try:
        for address in (held.pop(2), held.pop(1)):
            device.free(address)
            for offset in (0, 2 * MIB, 4 * MIB - 1):
                found = device.driver.attributes(address + offset)
                require(found == (MemoryKind.UNKNOWN, -1), f"at offset {offset} of freed memory: {found}")
    finally:
        for address in held:
            device.free(address)


@CASES.case("host_window")
def window(device: Device) -> None:
    """All allocations are inside the window, and the CPU can access them there."""
    bounds = device.driver.window(device.index)
    assert bounds is not None
    with allocated(device, MIB) as address:
        offset = address - bounds.device_base
        require(0 <= offset <= bounds.nbytes - MIB, f"{address:#x} is outside {bounds}")
        seen = np.ctypeslib.as_array((ctypes.c_uint8 * MIB).from_address(bounds.host_base + offset))
        device.write(address, pattern(MIB, 1))
        require_bytes(seen.copy(), pattern(MIB, 1), "the CPU's view after copy()")
        seen[:] = pattern(MIB, 2)
        require_bytes(device.read(address, MIB), pattern(MIB, 2), "copy() after the CPU wrote")
