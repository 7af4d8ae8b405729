"""Cases of streams: order within a stream, independence, waiting."""

import ctypes
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
from isthmus.drivers.interface import CopyKind, Status

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


@CASES.case("stream_wait_event", HOST_FUNCTIONS, devices=2)
def wait_for_another_device(device: Device) -> None:
    """The event may belong to another device."""
    driver = device.driver
    driver.device_set(1)
    maker, event = driver.result_of("stream_create", 0), driver.result_of("event_create", 0)
    driver.device_set(0)
    with stream_of(device) as user:
        with gate(driver, maker):
            driver.event_record(event, maker)
            driver.stream_wait_event(user, event)
            wait = host_function(driver, user, lambda: None)
            found = driver.status("stream_query", user)
            require(found == Status.NOT_READY, f"the waiting stream was {found.name}")
        wait()
    driver.event_destroy(event)
    driver.stream_destroy(maker)


@CASES.case("stream_destroy", HOST_FUNCTIONS)
def destroy_with_work(device: Device) -> None:
    """Outstanding work of a destroyed stream still runs."""
    driver = device.driver
    stream = driver.result_of("stream_create", 0)
    with allocated(device, MIB) as address:
        device.write(address, np.zeros(MIB, np.uint8))
        with gate(driver, stream) as open_gate:
            driver.set_async(address, 3, MIB, stream)
            threading.Timer(WAIT_SECONDS, open_gate).start()
            driver.stream_destroy(stream)
        driver.device_synchronize()
        require_bytes(device.read(address, MIB), 3, "what the destroyed stream wrote")


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


@CASES.case("stream_priority_range")
def priorities(device: Device) -> None:
    """The highest priority is <= the lowest, and streams of both priorities work."""
    lowest, highest = ctypes.c_int32(99), ctypes.c_int32(99)
    device.driver.stream_priority_range(ctypes.byref(lowest), ctypes.byref(highest))
    require(highest.value <= lowest.value, f"highest is {highest.value}, lowest {lowest.value}")
    require(99 not in (lowest.value, highest.value), "an output was not written")
    with allocated(device, 64) as address:
        for priority in (lowest.value, highest.value):
            with stream_of(device, priority) as stream:
                device.driver.set_async(address, 5, 64, stream)
                device.driver.stream_synchronize(stream)
                require(device.read(address, 64) == b"\5" * 64, f"work at priority {priority} did not run")


@CASES.case("stream_host_function")
def host_function_in_order(device: Device) -> None:
    """A host function runs after earlier work, and later work waits for it."""
    driver = device.driver
    with scratch(device, MIB) as (stream, address), allocate_pinned(driver, 2 * MIB) as host:
        source, seen = host[:MIB], host[MIB:]
        source[:], seen[:] = pattern(MIB, 1), 0
        copy_in(driver, address, source, stream)
        copy_out(driver, seen, address, stream)
        noticed: list[bool] = []

        def change() -> None:
            noticed.append(bool((seen == pattern(MIB, 1)).all()))
            source[:] = pattern(MIB, 2)

        wait = host_function(driver, stream, change)
        driver.copy_async(address, source.ctypes.data, MIB, CopyKind.HOST_TO_DEVICE, stream)
        driver.stream_synchronize(stream)
        wait()
        require(noticed == [True], "it ran before the copy that was enqueued before it")
        require_bytes(device.read(address, MIB), pattern(MIB, 2), "the copy that was enqueued after it")


@CASES.case("stream_host_function", "stream_query")
def host_function_thread(device: Device) -> None:
    """A host function runs on a thread of the driver."""
    ran_on: list[int] = []
    host_function(device.driver, 0, lambda: ran_on.append(threading.get_native_id()))()
    require(ran_on[0] != threading.get_native_id(), "it ran on the thread that enqueued it")


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
