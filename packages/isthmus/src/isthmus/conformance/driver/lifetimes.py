"""Cases of streams, events and memory that are released while work is outstanding."""

import threading
from contextlib import ExitStack

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    HOST_FUNCTIONS,
    MIB,
    WAIT_SECONDS,
    Cases,
    allocate_pinned,
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
from isthmus.drivers.interface import CopyKind

CASES = Cases()
ROUNDS = 4
STREAMS = 8


@CASES.case("stream_destroy", HOST_FUNCTIONS)
def destroy_with_work(device: Device) -> None:
    """Outstanding work of a destroyed stream still runs, in order, and device_synchronize() waits for it."""
    driver = device.driver
    with scratch(device, MIB, MIB) as (_, first, second), allocate_pinned(driver, MIB) as seen:
        for address in (first, second):
            device.write(address, np.zeros(MIB, np.uint8))
        seen[:] = 0
        stream = driver.result_of("stream_create", 0)
        with gate(driver, stream) as open_gate:
            driver.set_async(first, 3, MIB, stream)
            driver.copy_async(second, first, MIB, CopyKind.DEVICE_TO_DEVICE, stream)
            copy_out(driver, seen, second, stream)
            called: list[int] = []
            wait = host_function(driver, stream, lambda: called.append(int(seen[0])))
            threading.Timer(WAIT_SECONDS, open_gate).start()
            driver.stream_destroy(stream)
            driver.device_synchronize()
            require_bytes(seen.copy(), 3, "after device_synchronize(), the last copy of the destroyed stream")
            require(called == [3], f"its host function was called with {called} copied, expected [3]")
            wait()


@CASES.case("stream_destroy", HOST_FUNCTIONS)
def destroy_while_awaited(device: Device) -> None:
    """An event that was recorded on a destroyed stream is done when its outstanding work is, and not before."""
    driver = device.driver
    with scratch(device, MIB, events=1) as (user, event, address), allocate_pinned(driver, MIB) as seen:
        device.write(address, np.zeros(MIB, np.uint8))
        seen[:] = 0
        stream = driver.result_of("stream_create", 0)
        with gate(driver, stream) as open_gate:
            driver.set_async(address, 3, MIB, stream)
            driver.event_record(event, stream)
            driver.stream_wait_event(user, event)
            copy_out(driver, seen, address, user)
            threading.Timer(WAIT_SECONDS, open_gate).start()
            driver.stream_destroy(stream)
            driver.event_synchronize(event)
            require_bytes(device.read(address, MIB), 3, "after event_synchronize(), the fill")
            driver.stream_synchronize(user)
            require_bytes(seen.copy(), 3, "what a stream that waited for the event read")


@CASES.case("stream_destroy", HOST_FUNCTIONS)
def create_after_destroy(device: Device) -> None:
    """A stream that is created after one with work was destroyed is another one."""
    driver = device.driver
    with scratch(device, MIB, MIB) as (idle, first, second), ExitStack() as stack:
        device.write(first, np.zeros(MIB, np.uint8))
        old = driver.result_of("stream_create", 0)
        with gate(driver, old) as open_gate:
            driver.set_async(first, 3, MIB, old)
            threading.Timer(WAIT_SECONDS, open_gate).start()
            driver.stream_destroy(old)
            streams = [stack.enter_context(stream_of(device)) for _ in range(STREAMS)]
            require(len({idle, *streams}) == 1 + STREAMS, "two streams have the same handle")
            for i, stream in enumerate(streams):
                driver.set_async(second, 1 + i, MIB, stream)
                driver.stream_synchronize(stream)
                require_bytes(device.read(second, MIB), 1 + i, "a fill on a new stream")
        driver.device_synchronize()
        require_bytes(device.read(first, MIB), 3, "the fill on the destroyed stream")


@CASES.case("stream_destroy")
def events_of_a_destroyed_stream(device: Device) -> None:
    """Events that were recorded on a destroyed stream are done when its work is."""
    driver = device.driver
    with scratch(device, NBYTES, events=1) as (user, event, address), allocate_pinned(driver, NBYTES) as seen:
        for value in range(64, 64 + ROUNDS):
            with stream_of(device) as stream:
                enqueue_fills(device, address, value, stream)
                driver.event_record(event, stream)
            if value % 2:
                driver.event_synchronize(event)
            else:
                driver.stream_wait_event(user, event)
            copy_out(driver, seen, address, user)
            driver.stream_synchronize(user)
            require_bytes(seen.copy(), value, "after the event")


@CASES.case("event_destroy")
def waits_for_a_destroyed_event(device: Device) -> None:
    """A stream waits for an event that was destroyed since, whatever is recorded by events created later."""
    driver = device.driver
    with (
        scratch(device, NBYTES, streams=3) as (maker, user, idle, address),
        allocate_pinned(driver, NBYTES) as seen,
    ):
        for value in range(64, 64 + ROUNDS):
            with event_of(device) as event:
                enqueue_fills(device, address, value, maker)
                driver.event_record(event, maker)
                driver.stream_wait_event(user, event)
            with event_of(device) as later:
                driver.event_record(later, idle)
            copy_out(driver, seen, address, user)
            driver.stream_synchronize(user)
            require_bytes(seen.copy(), value, "what the waiting stream read")


@CASES.case("memory_free")
def free_beside_work(device: Device) -> None:
    """Freeing and allocating memory does not disturb work on other memory, nor reuse what that needs."""
    driver = device.driver
    with scratch(device, NBYTES, NBYTES) as (stream, first, second), allocate_pinned(driver, NBYTES) as seen:
        for value in range(64, 64 + ROUNDS):
            idle, pinned = device.allocate(NBYTES), driver.result_of("host_allocate", MIB)
            enqueue_fills(device, first, value, stream)
            driver.copy_async(second, first, NBYTES, CopyKind.DEVICE_TO_DEVICE, stream)
            copy_out(driver, seen, second, stream)
            device.free(idle)
            driver.host_free(pinned)
            made = [device.allocate(nbytes) for nbytes in (NBYTES, NBYTES // 2, 64)]
            for address in made:
                device.write(address, pattern(64, value))
            driver.stream_synchronize(stream)
            require_bytes(seen.copy(), value, "work while other memory was freed")
            for address in made:
                require_bytes(
                    device.read(address, 64), pattern(64, value), "memory allocated beside the work"
                )
                device.free(address)
