"""Cases of events: record, query, synchronize, elapsed time."""

import ctypes
import threading
import time
from contextlib import ExitStack

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    HOST_FUNCTIONS,
    MIB,
    WAIT_SECONDS,
    Cases,
    allocated,
    event_of,
    gate,
    host_function,
    require,
    require_bytes,
    require_status,
    scratch,
    stream_of,
)
from isthmus.drivers.interface import Status

CASES = Cases()
TIMING = 1  # ISTHMUS_EVENT_TIMING
UNTOUCHED = -7.0
NEW_EVENTS = 8  # more than a driver may keep for reuse before it reuses one


@CASES.case("event_query")
def unrecorded(device: Device) -> None:
    """An event that was never recorded is complete."""
    with event_of(device) as event:
        found = device.driver.status("event_query", event)
        require(found == Status.OK, f"event_query() returned {found.name}")
        device.driver.event_synchronize(event)


@CASES.case("event_query", HOST_FUNCTIONS)
def query(device: Device) -> None:
    """event_query() returns ISTHMUS_NOT_READY until the captured work is done."""
    driver = device.driver
    with stream_of(device) as stream, event_of(device) as event:
        with gate(driver, stream, "event_record() or event_query()"):
            driver.event_record(event, stream)
            found = driver.status("event_query", event)
            require(found == Status.NOT_READY, f"before the work was done it returned {found.name}")
        driver.stream_synchronize(stream)
        found = driver.status("event_query", event)
        require(found == Status.OK, f"after the work was done it returned {found.name}")


@CASES.case("event_record", HOST_FUNCTIONS)
def captures_earlier_work_only(device: Device) -> None:
    """An event captures the work so far, not later work."""
    driver = device.driver
    with stream_of(device) as stream, event_of(device) as event, allocated(device, MIB) as address:
        driver.set_async(address, 1, MIB, stream)
        driver.event_record(event, stream)
        with gate(driver, stream, "event_synchronize()"):
            driver.event_synchronize(event)
            found = driver.status("event_query", event)
            require(found == Status.OK, f"after event_synchronize() it returned {found.name}")


@CASES.case("event_record", HOST_FUNCTIONS)
def record_again(device: Device) -> None:
    """A record replaces an earlier one."""
    driver = device.driver
    with stream_of(device) as stream, stream_of(device) as other, event_of(device) as event:
        driver.event_record(event, other)
        driver.event_synchronize(event)
        with gate(driver, stream):
            driver.event_record(event, stream)
            found = driver.status("event_query", event)
            require(found == Status.NOT_READY, f"after a second record it returned {found.name}")
        driver.event_synchronize(event)


@CASES.case("event_record", HOST_FUNCTIONS)
def record_on_default_stream(device: Device) -> None:
    """A null stream is the default stream."""
    with event_of(device) as event:
        with gate(device.driver, 0):
            device.driver.event_record(event, 0)
            found = device.driver.status("event_query", event)
            require(found == Status.NOT_READY, f"while the default stream had work it returned {found.name}")
        device.driver.event_synchronize(event)


@CASES.case("event_synchronize", HOST_FUNCTIONS)
def synchronize(device: Device) -> None:
    """event_synchronize() waits for the captured work."""
    driver = device.driver
    with stream_of(device) as stream, event_of(device) as event:
        done: list[int] = []
        with gate(driver, stream) as open_gate:
            wait = host_function(driver, stream, lambda: done.append(1))
            driver.event_record(event, stream)
            threading.Timer(WAIT_SECONDS, open_gate).start()
            driver.event_synchronize(event)
            require(done == [1], "it returned before the work was done")
        wait()


@CASES.case("event_destroy", HOST_FUNCTIONS)
def destroy_while_awaited(device: Device) -> None:
    """An event may be destroyed while a stream waits for it, and a new one does not end the wait."""
    driver = device.driver
    with scratch(device, MIB, streams=3) as (maker, user, idle, address):
        device.write(address, np.zeros(MIB, np.uint8))
        event = driver.result_of("event_create", 0)
        with gate(driver, maker), ExitStack() as stack:
            driver.set_async(address, 1, MIB, maker)
            driver.event_record(event, maker)
            driver.stream_wait_event(user, event)
            driver.event_destroy(event)
            for _ in range(NEW_EVENTS):
                driver.event_record(stack.enter_context(event_of(device)), idle)
            driver.stream_synchronize(idle)
            driver.set_async(address, 2, MIB, user)
            found = driver.status("stream_query", user)
            require(found == Status.NOT_READY, f"the waiting stream was {found.name}")
        driver.stream_synchronize(user)
        require_bytes(device.read(address, MIB), 2, "the later fill")


@CASES.case("event_destroy", HOST_FUNCTIONS)
def destroy_before_it_is_done(device: Device) -> None:
    """An event may be destroyed before its work is done, which does not complete an event that is created later."""
    driver = device.driver
    with scratch(device, streams=2) as (first, second), ExitStack() as stack:
        old = [driver.result_of("event_create", 0) for _ in range(NEW_EVENTS)]
        with gate(driver, second):
            with gate(driver, first):
                for event in old:
                    driver.event_record(event, first)
                    driver.event_destroy(event)
                new = [stack.enter_context(event_of(device)) for _ in range(NEW_EVENTS)]
                for event in new:
                    driver.event_record(event, second)
            driver.stream_synchronize(first)
            found = {driver.status("event_query", event).name for event in new}
            require(
                found == {"NOT_READY"}, f"when the work of destroyed events was done, new ones were {found}"
            )
        driver.stream_synchronize(second)
        found = {driver.status("event_query", event).name for event in new}
        require(found == {"OK"}, f"after their own work the new events were {found}")


@CASES.case("event_create")
def many_events(device: Device) -> None:
    """Events can be created and destroyed any number of times, and have distinct handles."""
    for _ in range(20):
        events = [device.driver.result_of("event_create", i % 2) for i in range(50)]
        require(0 not in events and len(set(events)) == len(events), "a handle is null or not unique")
        for event in events:
            device.driver.event_destroy(event)


@CASES.case("event_elapsed", HOST_FUNCTIONS)
def elapsed(device: Device) -> None:
    """event_elapsed() returns milliseconds from start to end."""
    driver = device.driver
    with stream_of(device) as stream, event_of(device, TIMING) as start, event_of(device, TIMING) as end:
        began = time.monotonic()
        driver.event_record(start, stream)
        slept: list[float] = []

        def sleep() -> None:
            at = time.monotonic()
            time.sleep(WAIT_SECONDS)
            slept.append(1e3 * (time.monotonic() - at))

        wait = host_function(driver, stream, sleep)
        driver.event_record(end, stream)
        driver.event_synchronize(end)
        wait()
        most = 1e3 * (time.monotonic() - began)
        found = driver.elapsed(start, end)
        # The clocks of the host and of the device may differ by a little.
        require(
            0.95 * slept[0] <= found <= 1.05 * most, f"{found} ms, expected between {slept[0]} and {most}"
        )
        back = ctypes.c_double(UNTOUCHED)
        driver.status("event_elapsed", end, start, ctypes.byref(back))  # a driver may refuse this order
        require(back.value <= 0, f"from end to start it is {back.value} ms")


@CASES.case("event_elapsed", HOST_FUNCTIONS)
def elapsed_too_early(device: Device) -> None:
    """An incomplete event returns ISTHMUS_NOT_READY and leaves the output unchanged."""
    driver = device.driver
    with stream_of(device) as stream, event_of(device, TIMING) as start, event_of(device, TIMING) as end:
        driver.event_record(start, stream)
        with gate(driver, stream, "event_elapsed()"):
            driver.event_record(end, stream)
            output = ctypes.c_double(UNTOUCHED)
            found = driver.status("event_elapsed", start, end, ctypes.byref(output))
            require(found == Status.NOT_READY, f"it returned {found.name}")
            require(output.value == UNTOUCHED, "it wrote to the output")
        driver.event_synchronize(end)


@CASES.case("event_elapsed")
def elapsed_invalid(device: Device) -> None:
    """An event without record or timing returns ISTHMUS_INVALID_ARGUMENT and leaves the output unchanged."""
    driver = device.driver
    with (
        scratch(device, events=2, flags=TIMING) as (stream, recorded, unrecorded),
        event_of(device) as untimed,
    ):
        for event in (recorded, untimed):
            driver.event_record(event, stream)
        driver.stream_synchronize(stream)
        for other in (unrecorded, untimed):
            for pair in ((recorded, other), (other, recorded), (other, other)):
                output = ctypes.c_double(UNTOUCHED)
                require_status(driver, Status.INVALID_ARGUMENT, "event_elapsed", *pair, ctypes.byref(output))
                require(output.value == UNTOUCHED, "it wrote to the output")


@CASES.case("event_elapsed")
def elapsed_of_the_last_record(device: Device) -> None:
    """The time of an event that was recorded again is that of the last record."""
    driver = device.driver
    with scratch(device, events=2, flags=TIMING) as (stream, start, end):
        for event in (start, end):
            driver.event_record(event, stream)
        driver.stream_synchronize(stream)
        time.sleep(WAIT_SECONDS)
        driver.event_record(end, stream)
        driver.stream_synchronize(stream)
        found, least = driver.elapsed(start, end), 950 * WAIT_SECONDS
        require(found >= least, f"{found} ms, expected at least {least}")
