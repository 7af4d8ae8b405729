"""Cases of copies and fills: all directions, odd sizes and offsets, order on a stream."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    CANARY,
    HOST_FUNCTIONS,
    MIB,
    WAIT_SECONDS,
    Cases,
    allocate_pinned,
    allocated,
    copy_in,
    copy_out,
    gate,
    guarded_memory,
    pattern,
    require,
    require_bytes,
    require_status,
    scratch,
    stream_of,
)
from isthmus.drivers.interface import CopyKind, Status

CASES = Cases()
SHAPES = [(offset, size) for offset in (0, 1, 3, 17) for size in (1, 2, 3, 7, 63, 64, 65, 255, 4097)]
LARGE = MIB + 3  # larger than what a driver copies on the calling thread
ROUNDS = 32


@CASES.case("copy")
def copy_host(device: Device) -> None:
    """copy() from and to the host copies exactly the requested bytes."""
    for offset, nbytes in [*SHAPES, (5, LARGE)]:
        data = pattern(nbytes, nbytes)
        with guarded_memory(device, offset, nbytes) as address:
            device.driver.copy(address, data.ctypes.data, nbytes, CopyKind.HOST_TO_DEVICE)
            host = np.full(nbytes + 2, CANARY, np.uint8)
            device.driver.copy(host.ctypes.data + 1, address, nbytes, CopyKind.DEVICE_TO_HOST)
            require_bytes(host[1:-1], data, f"{nbytes} bytes at offset {offset}")
            require(
                host[0] == CANARY and host[-1] == CANARY,
                f"{nbytes} bytes: neighbouring bytes of the host were written",
            )


@CASES.case("copy")
def copy_within(device: Device) -> None:
    """copy() within the device copies exactly the requested bytes."""
    for offset, nbytes in [*SHAPES, (5, LARGE)]:
        data = pattern(nbytes, nbytes)
        with allocated(device, nbytes + 1) as source, guarded_memory(device, offset, nbytes) as address:
            device.write(source + 1, data)
            device.driver.copy(address, source + 1, nbytes, CopyKind.DEVICE_TO_DEVICE)
            require_bytes(device.read(address, nbytes), data, f"{nbytes} bytes at offset {offset}")
            require_bytes(device.read(source + 1, nbytes), data, "the source afterwards")


@CASES.case("copy")
def copy_nothing(device: Device) -> None:
    """A copy of 0 bytes is valid and changes nothing."""
    with guarded_memory(device, 8, 8) as address:
        device.driver.copy(address, np.zeros(8, np.uint8).ctypes.data, 0, CopyKind.HOST_TO_DEVICE)
        require_bytes(device.read(address, 8), CANARY, "the destination")


@CASES.case("copy_async")
def enqueue_nothing(device: Device) -> None:
    """An asynchronous copy or fill of 0 bytes is valid and changes nothing."""
    with (
        guarded_memory(device, 8, 8) as address,
        allocate_pinned(device.driver, 8) as host,
        stream_of(device) as stream,
    ):
        host[:] = 0
        device.driver.copy_async(address, host.ctypes.data, 0, CopyKind.HOST_TO_DEVICE, stream)
        device.driver.set_async(address, 1, 0, stream)
        device.driver.stream_synchronize(stream)
        require_bytes(device.read(address, 8), CANARY, "the destination")


@CASES.case("copy")
def copy_of_unknown_kind(device: Device) -> None:
    """An unknown kind returns ISTHMUS_INVALID_ARGUMENT and copies nothing."""
    host = np.zeros(8, np.uint8)
    with guarded_memory(device, 0, 8) as address:
        require_status(device.driver, Status.INVALID_ARGUMENT, "copy", address, host.ctypes.data, 8, 9)
        require_bytes(device.read(address, 8), CANARY, "the destination")


@CASES.case("copy", HOST_FUNCTIONS)
def copy_does_not_wait(device: Device) -> None:
    """copy() does not wait for any stream."""
    with allocated(device, 64) as address, stream_of(device) as stream:
        for held in (0, stream):
            with gate(device.driver, held, "copy()"):
                device.write(address, pattern(64))


@CASES.case("copy_async")
def copy_async_pinned(device: Device) -> None:
    """Asynchronous copies from and to pinned memory copy exactly the requested bytes."""
    driver = device.driver
    with stream_of(device) as stream:
        for offset, nbytes in [*SHAPES[::3], (5, LARGE)]:
            data = pattern(nbytes, nbytes)
            with (
                guarded_memory(device, offset, nbytes) as address,
                allocate_pinned(driver, 2 * nbytes) as host,
            ):
                host[:nbytes] = data
                copy_in(driver, address, host[:nbytes], stream)
                copy_out(driver, host[nbytes:], address, stream)
                driver.stream_synchronize(stream)
                require_bytes(host[nbytes:].copy(), data, f"{nbytes} bytes at offset {offset}")


@CASES.case("copy_async")
def copy_async_within(device: Device) -> None:
    """Asynchronous copies within the device copy exactly the requested bytes, from any offset to any other."""
    driver = device.driver
    with stream_of(device) as stream:
        for offset, nbytes in [*SHAPES, (5, LARGE)]:
            data = pattern(nbytes, nbytes)
            with allocated(device, nbytes + 1) as source, guarded_memory(device, offset, nbytes) as address:
                device.write(source + 1, data)
                driver.copy_async(address, source + 1, nbytes, CopyKind.DEVICE_TO_DEVICE, stream)
                driver.stream_synchronize(stream)
                require_bytes(device.read(address, nbytes), data, f"{nbytes} bytes at offset {offset}")


@CASES.case("copy_async")
def copy_async_pageable(device: Device) -> None:
    """Asynchronous copies accept pageable host memory."""
    data, back = pattern(LARGE), np.zeros(LARGE, np.uint8)
    with guarded_memory(device, 1, LARGE) as address, stream_of(device) as stream:
        copy_in(device.driver, address, data, stream)
        copy_out(device.driver, back, address, stream)
        device.driver.stream_synchronize(stream)
        require_bytes(back, data, "there and back")


@CASES.case("copy_async")
def copies_in_order(device: Device) -> None:
    """Work on one stream runs in order."""
    driver = device.driver
    with (
        scratch(device, LARGE, LARGE) as (stream, first, second),
        allocate_pinned(driver, ROUNDS) as host,
        allocate_pinned(driver, ROUNDS) as seen,
    ):
        host[:] = pattern(ROUNDS)
        for i in range(ROUNDS):
            driver.set_async(first, int(host[i]), LARGE, stream)
            driver.copy_async(second, first, LARGE, CopyKind.DEVICE_TO_DEVICE, stream)
            copy_out(driver, seen[i : i + 1], second + LARGE - 1, stream)
        driver.stream_synchronize(stream)
        require_bytes(seen.copy(), pattern(ROUNDS), "fill, copy, read back, over and over")


@CASES.case("copy_async", HOST_FUNCTIONS)
def copy_async_only_enqueues(device: Device) -> None:
    """copy_async() only enqueues, and the copy runs after earlier work."""
    driver = device.driver
    with (
        allocated(device, LARGE) as address,
        allocate_pinned(driver, LARGE) as host,
        stream_of(device) as stream,
    ):
        device.write(address, np.zeros(LARGE, np.uint8))
        host[:] = pattern(LARGE)
        with gate(driver, stream, "copy_async()"):
            copy_in(driver, address, host, stream)
            time.sleep(WAIT_SECONDS)
            require_bytes(device.read(address, LARGE), 0, "before earlier work was done")
        driver.stream_synchronize(stream)
        require_bytes(device.read(address, LARGE), pattern(LARGE), "after earlier work was done")


@CASES.case("set_async")
def fill(device: Device) -> None:
    """set_async() sets exactly the requested bytes."""
    for value, (offset, nbytes) in zip((0, 0xA5, 255) * 20, [*SHAPES, (5, LARGE)], strict=False):
        with guarded_memory(device, offset, nbytes) as address:
            device.fill(address, value, nbytes)
            device.synchronize()
            expected = np.full(nbytes, value, np.uint8)
            require_bytes(
                device.read(address, nbytes), expected, f"{nbytes} bytes of {value} at offset {offset}"
            )


@CASES.case("set_async", HOST_FUNCTIONS)
def fill_only_enqueues(device: Device) -> None:
    """set_async() only enqueues, and the fill runs after earlier work."""
    with allocated(device, LARGE) as address, stream_of(device) as stream:
        device.write(address, np.zeros(LARGE, np.uint8))
        with gate(device.driver, stream, "set_async()"):
            device.driver.set_async(address, 7, LARGE, stream)
            time.sleep(WAIT_SECONDS)
            require_bytes(device.read(address, LARGE), 0, "before earlier work was done")
        device.driver.stream_synchronize(stream)
        require_bytes(device.read(address, LARGE), 7, "after earlier work was done")


@contextmanager
def on_two_devices(device: Device) -> Iterator[list[tuple[int, int]]]:
    """Make (memory of LARGE bytes, stream) on each of two devices for a block."""
    driver, made = device.driver, []
    try:
        for index in (0, 1):
            driver.device_set(index)
            made.append((driver.result_of("memory_allocate", LARGE), driver.result_of("stream_create", 0)))
        yield made
    finally:
        for address, stream in made:
            driver.stream_destroy(stream)
            driver.memory_free(address)


@CASES.case("copy_peer_async", devices=2)
def copy_between_devices(device: Device) -> None:
    """copy_peer_async() copies between two devices in both directions, on a stream of either."""
    driver, data = device.driver, pattern(LARGE)
    with on_two_devices(device) as made:
        for start, end in ((0, 1), (1, 0)):
            for _, stream in made:
                driver.write(made[start][0], data)
                driver.write(made[end][0], np.zeros(LARGE, np.uint8))
                driver.copy_peer_async(made[end][0], end, made[start][0], start, LARGE, stream)
                driver.stream_synchronize(stream)
                found = driver.read(made[end][0], LARGE)
                require_bytes(found, data, f"from device {start} to device {end}")


@CASES.case("copy_peer_async", HOST_FUNCTIONS, devices=2)
def copy_between_devices_only_enqueues(device: Device) -> None:
    """copy_peer_async() only enqueues, and the copy runs after earlier work of its stream."""
    driver, data, zeros = device.driver, pattern(LARGE), np.zeros(LARGE, np.uint8)
    with on_two_devices(device) as ((source, first), (target, second)):
        for stream in (first, second):
            driver.write(source, data)
            driver.write(target, zeros)
            with gate(driver, stream, "copy_peer_async()"):
                driver.copy_peer_async(target, 1, source, 0, LARGE, stream)
                time.sleep(WAIT_SECONDS)
                require_bytes(driver.read(target, LARGE), zeros, "before earlier work was done")
            driver.stream_synchronize(stream)
            require_bytes(driver.read(target, LARGE), data, "after earlier work was done")
