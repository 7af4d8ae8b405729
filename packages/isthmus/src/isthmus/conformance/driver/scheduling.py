"""Cases of order across devices, of host functions and of priorities."""

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import NamedTuple

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    HOST_FUNCTIONS,
    MIB,
    WAIT_SECONDS,
    Bytes,
    Cases,
    allocate_pinned,
    copy_in,
    copy_out,
    event_of,
    gate,
    host_function,
    pattern,
    require,
    require_bytes,
    scratch,
    stream_of,
)
from isthmus.conformance.driver.order import NBYTES, enqueue_fills
from isthmus.drivers.driver import Driver
from isthmus.drivers.interface import CopyKind, Status

CASES = Cases()
FUNCTIONS = 300  # less than 1024, where some drivers wait for room in the queue


class Side(NamedTuple):
    """A device by its number, with the stream, event and memory that a case made there."""

    number: int
    stream: int
    event: int
    address: int


@contextmanager
def two_devices(device: Device) -> Iterator[list[Side]]:
    """Make a stream, an event and memory on each of two devices for a block."""
    driver, made = device.driver, []
    try:
        for index in (0, 1):
            driver.device_set(index)
            stream, event = driver.result_of("stream_create", 0), driver.result_of("event_create", 0)
            made.append(Side(index, stream, event, driver.result_of("memory_allocate", NBYTES)))
        yield made
    finally:
        for side in made:
            driver.device_set(side.number)
            driver.device_synchronize()
            driver.event_destroy(side.event)
            driver.stream_destroy(side.stream)
            driver.memory_free(side.address)


def pass_on(driver: Driver, maker: Side, user: Side, through: Bytes, is_default: bool) -> None:
    """Copy from one device through pinned memory to the other, whose stream waits for the first one's event."""
    driver.device_set(maker.number)
    copy_out(driver, through, maker.address, maker.stream)
    driver.event_record(maker.event, maker.stream)
    driver.device_set(user.number)
    stream = 0 if is_default else user.stream
    driver.stream_wait_event(stream, maker.event)
    copy_in(driver, user.address, through, stream)


@CASES.case("stream_wait_event", devices=2)
def wait_for_another_device(device: Device) -> None:
    """A stream that waits for an event of another device sees the results of the captured work."""
    driver = device.driver
    with two_devices(device) as (first, second), allocate_pinned(driver, NBYTES) as through:
        for value, (maker, user) in enumerate([(first, second), (second, first)] * 3, start=64):
            driver.device_set(maker.number)
            enqueue_fills(device, maker.address, value, maker.stream)
            is_default = value % 3 == 0
            pass_on(driver, maker, user, through, is_default)
            driver.stream_synchronize(0 if is_default else user.stream)
            require_bytes(driver.read(user.address, NBYTES), value, "what the waiting device read")


@CASES.case("stream_wait_event", HOST_FUNCTIONS, devices=2)
def wait_for_a_held_device(device: Device) -> None:
    """A stream waits for an event of another device as long as that is not reached; the calling thread does not."""
    driver = device.driver
    with two_devices(device) as (first, second), allocate_pinned(driver, NBYTES) as through:
        for value, (maker, user) in enumerate([(first, second), (second, first)], start=64):
            driver.device_set(maker.number)
            with gate(driver, maker.stream, "stream_wait_event()"):
                driver.set_async(maker.address, value, NBYTES, maker.stream)
                pass_on(driver, maker, user, through, is_default=False)
                time.sleep(WAIT_SECONDS)
                found = driver.status("stream_query", user.stream)
                require(found == Status.NOT_READY, f"the waiting stream was {found.name}")
            driver.stream_synchronize(user.stream)
            require_bytes(driver.read(user.address, NBYTES), value, "what the waiting device read")


@CASES.case("stream_host_function")
def host_function_in_order(device: Device) -> None:
    """A host function runs after earlier work, and later work waits for it."""
    driver = device.driver
    for nbytes in (17, 4096, MIB):  # a driver may take a copy of few bytes at once, of pageable memory only
        with scratch(device, nbytes) as (stream, address), allocate_pinned(driver, 2 * nbytes) as host:
            source, seen = host[:nbytes], host[nbytes:]
            source[:], seen[:] = pattern(nbytes, 1), 0
            copy_in(driver, address, source, stream)
            copy_out(driver, seen, address, stream)
            noticed: list[bool] = []

            def change(source: Bytes = source, seen: Bytes = seen, noticed: list[bool] = noticed) -> None:
                noticed.append(bool((seen == pattern(seen.size, 1)).all()))
                time.sleep(WAIT_SECONDS)
                source[:] = pattern(source.size, 2)

            wait = host_function(driver, stream, change)
            copy_in(driver, address, source, stream)
            driver.stream_synchronize(stream)
            require(noticed != [], "stream_synchronize() did not wait for it")
            wait()
            require(
                noticed == [True], f"it ran before the copy of {nbytes} bytes that was enqueued before it"
            )
            found = device.read(address, nbytes)
            require_bytes(found, pattern(nbytes, 2), f"the copy of {nbytes} bytes that was enqueued after it")


@CASES.case("stream_host_function")
def host_functions_in_turn(device: Device) -> None:
    """Host functions of a stream run one at a time, in order, as do the copies between them."""
    driver = device.driver
    with scratch(device, 64) as (stream, address), allocate_pinned(driver, 64) as seen:
        seen[:] = 0
        started: list[tuple[int, int]] = []
        ended: list[int] = []

        def run(index: int) -> None:
            started.append((index, int(seen[0])))
            time.sleep(
                WAIT_SECONDS if index == 0 else 0.001 * (index % 30 == 0)
            )  # a later one could overtake it
            ended.append(index)

        waits = []
        for i in range(FUNCTIONS):
            driver.set_async(address, 1 + i % 251, 64, stream)
            copy_out(driver, seen, address, stream)
            waits.append(host_function(driver, stream, lambda i=i: run(i)))  # type: ignore[misc]
        driver.stream_synchronize(stream)
        for wait in waits:
            wait()
    require(ended == list(range(FUNCTIONS)), f"they ended in the order {ended}")
    require(started == [(i, 1 + i % 251) for i in range(FUNCTIONS)], f"(function, what it saw): {started}")


@CASES.case("stream_host_function", "stream_query")
def host_function_thread(device: Device) -> None:
    """A host function runs on a thread of the driver."""
    ran_on: list[int] = []
    host_function(device.driver, 0, lambda: ran_on.append(threading.get_native_id()))()
    require(ran_on[0] != threading.get_native_id(), "it ran on the thread that enqueued it")


def priority_range(driver: Driver) -> tuple[int, int]:
    """Return the lowest and the highest priority."""
    lowest, highest = ctypes.c_int32(99), ctypes.c_int32(99)
    driver.stream_priority_range(ctypes.byref(lowest), ctypes.byref(highest))
    return lowest.value, highest.value


@CASES.case("stream_priority_range")
def priorities(device: Device) -> None:
    """The highest priority is <= the lowest, and streams of every priority wait for each other's events."""
    driver = device.driver
    lowest, highest = priority_range(driver)
    require(99 not in (lowest, highest), "an output was not written")
    require(highest <= lowest, f"highest is {highest}, lowest {lowest}")
    steps = sorted({lowest, (lowest + highest) // 2, highest}, reverse=True)
    with scratch(device, NBYTES, NBYTES) as (_, *addresses), ExitStack() as stack:
        streams = [stack.enter_context(stream_of(device, step)) for step in steps]
        for value, (first, second) in enumerate([*pairwise(streams), (streams[-1], streams[0])], start=64):
            with event_of(device) as event:
                enqueue_fills(device, addresses[0], value, first)
                driver.event_record(event, first)
                driver.stream_wait_event(second, event)
                driver.copy_async(addresses[1], addresses[0], NBYTES, CopyKind.DEVICE_TO_DEVICE, second)
            driver.stream_synchronize(second)
            require_bytes(device.read(addresses[1], NBYTES), value, f"of priorities {steps}, what one read")


@CASES.case("stream_priority_range", HOST_FUNCTIONS)
def priorities_are_independent(device: Device) -> None:
    """A stream of any priority is one of its own: none waits for another without an event."""
    driver = device.driver
    lowest, highest = priority_range(driver)
    with (
        stream_of(device, lowest) as low,
        stream_of(device, highest) as high,
        scratch(device, 64) as (_, address),
    ):
        for held, free in ((low, high), (high, low), (0, high), (high, 0)):
            with gate(driver, held, "a stream of another priority"):
                driver.set_async(address, 5, 64, free)
                driver.stream_synchronize(free)
                require_bytes(device.read(address, 64), 5, "work of the free stream")
