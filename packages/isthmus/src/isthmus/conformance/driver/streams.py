"""Cases of streams: order within a stream, independence, waiting."""

import threading

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    HELD_SECONDS,
    HOST_FUNCTIONS,
    MIB,
    WAIT_SECONDS,
    Cases,
    allocate_pinned,
    allocated,
    copy_in,
    copy_out,
    each_device,
    event_of,
    gate,
    host_function,
    on_thread,
    pattern,
    require,
    require_bytes,
    scratch,
    stream_of,
)
from isthmus.drivers.interface import Status

CASES = Cases()


@CASES.case("stream_create")
def handles(device: Device) -> None:
    """Streams have distinct handles."""
    with scratch(device, streams=32) as found:
        require(0 not in found, "a handle is null")
        require(len(set(found)) == len(found), "two streams have the same handle")


@CASES.case("stream_create")
def many_streams(device: Device) -> None:
    """Streams can be created and destroyed any number of times."""
    with allocated(device, 64) as address:
        for i in range(300):
            with stream_of(device) as stream:
                device.driver.set_async(address, i % 256, 64, stream)
                device.driver.stream_synchronize(stream)
        require(device.read(address, 64) == bytes([299 % 256]) * 64, "the last fill is missing")


@CASES.case("stream_query", HOST_FUNCTIONS)
def query(device: Device) -> None:
    """stream_query() returns ISTHMUS_NOT_READY exactly while work is outstanding."""
    with stream_of(device) as stream:
        for held in (stream, 0):
            require(device.driver.status("stream_query", held) == Status.OK, "an idle stream is not ready")
            with gate(device.driver, held, "stream_query()"):
                found = device.driver.status("stream_query", held)
                require(found == Status.NOT_READY, f"with work outstanding it returned {found.name}")
            device.driver.stream_synchronize(held)
            require(device.driver.status("stream_query", held) == Status.OK, "after its work it is not ready")


@CASES.case("stream_synchronize", HOST_FUNCTIONS)
def synchronize(device: Device) -> None:
    """stream_synchronize() waits for all work enqueued so far."""
    with stream_of(device) as stream:
        for held in (stream, 0):
            done: list[int] = []
            with gate(device.driver, held) as open_gate:
                wait = host_function(device.driver, held, lambda done=done: done.append(1))  # type: ignore[misc]
                threading.Timer(WAIT_SECONDS, open_gate).start()
                device.driver.stream_synchronize(held)
                require(done == [1], "it returned before the work was done")
            wait()


@CASES.case("device_synchronize", HOST_FUNCTIONS)
def synchronize_device(device: Device) -> None:
    """device_synchronize() waits for the work of all streams."""
    driver = device.driver
    with stream_of(device) as first, stream_of(device) as second:
        done: list[int] = []
        with gate(driver, first) as open_first, gate(driver, second) as open_second:
            waits = [host_function(driver, s, lambda: done.append(1)) for s in (first, second)]
            threading.Timer(WAIT_SECONDS, open_first).start()
            threading.Timer(2 * WAIT_SECONDS, open_second).start()
            driver.device_synchronize()
            require(len(done) == 2, f"it returned when {len(done)} of 2 streams were done")
        for wait in waits:
            wait()


@CASES.case("device_synchronize", HOST_FUNCTIONS)
def synchronize_streams_of_another_thread(device: Device) -> None:
    """On every device, device_synchronize() waits for the work of streams that another thread created."""
    driver = device.driver

    def create(index: int) -> int:
        driver.device_set(index)
        return driver.result_of("stream_create", 0)

    for index in each_device(driver):
        stream = on_thread(lambda index=index: create(index))  # type: ignore[misc]
        done: list[int] = []
        with gate(driver, stream) as open_gate:
            wait = host_function(driver, stream, lambda done=done: done.append(1))  # type: ignore[misc]
            threading.Timer(WAIT_SECONDS, open_gate).start()
            driver.device_synchronize()
            require(done == [1], f"on device {index} it returned before the work was done")
        wait()
        driver.stream_destroy(stream)


@CASES.case("stream_create", HOST_FUNCTIONS)
def independence(device: Device) -> None:
    """Streams, the default stream included, do not wait for each other."""
    with scratch(device, MIB, streams=2) as (first, second, address):
        for held, free in ((first, second), (first, 0), (0, first)):
            with gate(device.driver, held, "a stream"):
                device.driver.set_async(address, 9, MIB, free)
                device.driver.stream_synchronize(free)
                require_bytes(device.read(address, MIB), 9, "a fill on the free stream")


@CASES.case("stream_wait_event", HOST_FUNCTIONS)
def wait_event(device: Device) -> None:
    """Later work waits for the work that the event captured on another stream."""
    driver = device.driver
    with (
        scratch(device, MIB, streams=2, events=1) as (maker, user, event, address),
        allocate_pinned(driver, 2 * MIB) as host,
    ):
        source, seen = host[:MIB], host[MIB:]
        source[:], seen[:] = pattern(MIB), 0
        device.write(address, np.zeros(MIB, np.uint8))
        with gate(driver, maker, "stream_wait_event()"):
            copy_in(driver, address, source, maker)
            driver.event_record(event, maker)
            driver.stream_wait_event(user, event)
            copy_out(driver, seen, address, user)
            found = driver.status("stream_query", user)
            require(
                found == Status.NOT_READY, f"while the event was not reached, the stream was {found.name}"
            )
        driver.stream_synchronize(user)
        require_bytes(seen.copy(), pattern(MIB), "what the waiting stream read")


@CASES.case("stream_wait_event", HOST_FUNCTIONS)
def wait_unrecorded_event(device: Device) -> None:
    """A wait for an event that was never recorded does not block a stream."""
    with stream_of(device) as stream, event_of(device) as event:
        device.driver.stream_wait_event(stream, event)
        host_function(device.driver, stream, lambda: None)()


@CASES.case("stream_wait_event", HOST_FUNCTIONS)
def wait_before_another_record(device: Device) -> None:
    """A wait refers to the last record before it, not to a later one."""
    driver = device.driver
    with stream_of(device) as maker, stream_of(device) as user, event_of(device) as event:
        driver.event_record(event, maker)
        driver.stream_synchronize(maker)
        with gate(driver, maker), gate(driver, user) as open_user:
            driver.stream_wait_event(user, event)  # reached only after the record below
            driver.event_record(event, maker)
            reached = threading.Event()
            wait = host_function(driver, user, reached.set)
            open_user()
            require(reached.wait(HELD_SECONDS / 2), "the stream waited for a record made after its wait")
        wait()


@CASES.case("stream_default", HOST_FUNCTIONS)
def default_handle(device: Device) -> None:
    """stream_default() returns the handle of the stream that null denotes."""
    stream = device.driver.result_of("stream_default")
    require(stream != 0, "the handle is null")
    with gate(device.driver, 0, "stream_query()"):
        found = device.driver.status("stream_query", stream)
        require(found == Status.NOT_READY, f"while the default stream had work, its handle was {found.name}")


@CASES.case("stream_query", HOST_FUNCTIONS, devices=2)
def default_stream_of_every_device(device: Device) -> None:
    """A null stream is the default stream of the current device, not of another."""
    driver = device.driver
    for held, other in ((1, 0), (0, 1)):
        driver.device_set(other)
        driver.stream_synchronize(0)  # waits for work that other cases have left
        driver.device_set(held)
        with gate(driver, 0):
            busy = driver.status("stream_query", 0)
            driver.device_set(other)
            idle = driver.status("stream_query", 0)
            driver.device_set(held)
        require(busy == Status.NOT_READY, f"with work on device {held} its default stream was {busy.name}")
        require(idle == Status.OK, f"with work on device {held} that of device {other} was {idle.name}")
        driver.stream_synchronize(0)


@CASES.case("stream_create")
def stream_on_another_thread(device: Device) -> None:
    """A stream may be used from any thread."""
    with stream_of(device) as stream, allocated(device, 64) as address:

        def use() -> None:
            device.driver.device_set(device.index)
            device.driver.set_async(address, 8, 64, stream)
            device.driver.stream_synchronize(stream)

        on_thread(use)
        require(device.read(address, 64) == b"\10" * 64, "the other thread's fill is missing")
