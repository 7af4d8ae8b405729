"""Cases of order and waiting, judged by the results of work: for drivers without host functions."""

import ctypes
import time
from collections.abc import Callable

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    HELD_SECONDS,
    Cases,
    allocate_pinned,
    allocated,
    copy_out,
    event_of,
    on_thread,
    require,
    require_bytes,
    scratch,
    stream_of,
)
from isthmus.drivers.interface import Status

CASES = Cases()
NBYTES = (4 << 20) + 1
FILLS = 24  # enough that work is outstanding at the next call
SINGLE_FILLS = 8
STREAMS = 40
TIMING = 1  # ISTHMUS_EVENT_TIMING
ATTEMPTS = 5
LEAST_SHARE = 0.2  # of the host's time; the rest are calls and waking up
UNTOUCHED = -7.0


def enqueue_fills(device: Device, address: int, value: int, stream: int) -> None:
    """Enqueue fills of which the last sets every byte to value."""
    for i in range(FILLS):
        device.driver.set_async(address, value ^ ((FILLS - 1 - i) & 0xFF), NBYTES, stream)


def wait_until_done(device: Device, function: str, handle: int) -> None:
    """Call a query function until it returns ISTHMUS_OK."""
    end = time.monotonic() + HELD_SECONDS
    while (found := device.driver.status(function, handle)) != Status.OK:
        require(found == Status.NOT_READY, f"it returned {found.name}")
        require(time.monotonic() < end, "it never returned ISTHMUS_OK")


def check_waiting(device: Device, wait: Callable[[int], object], what: str) -> None:
    """Check that the work of a stream, and of the default stream, is done after wait(stream)."""
    with stream_of(device) as stream, allocated(device, NBYTES) as address:
        for i, used in enumerate((stream, 0, stream, 0)):
            enqueue_fills(device, address, 64 + i, used)
            wait(used)
            require_bytes(device.read(address, NBYTES), 64 + i, what)
        for i in range(SINGLE_FILLS):  # of which the device may be at work, with nothing left in a queue
            device.driver.set_async(address, 100 + i, NBYTES, stream)
            time.sleep(0.0001 * i)
            wait(stream)
            require_bytes(device.read(address, NBYTES), 100 + i, what)


@CASES.case("stream_synchronize")
def stream_synchronize(device: Device) -> None:
    """After stream_synchronize() the stream's work is done."""
    check_waiting(device, device.driver.stream_synchronize, "after stream_synchronize()")


@CASES.case("device_synchronize")
def device_synchronize(device: Device) -> None:
    """After device_synchronize() the work of every stream is done."""
    driver = device.driver
    check_waiting(device, lambda _: driver.device_synchronize(), "after device_synchronize()")

    def create() -> int:
        driver.device_set(device.index)
        return driver.result_of("stream_create", 0)

    with allocated(device, NBYTES) as address:
        stream = on_thread(create)
        enqueue_fills(device, address, 68, stream)
        driver.device_synchronize()
        require_bytes(device.read(address, NBYTES), 68, "on a stream of another thread")
        driver.stream_destroy(stream)


@CASES.case("device_synchronize")
def device_synchronize_of_many(device: Device) -> None:
    """device_synchronize() waits for each of many streams, whichever alone has work."""
    with scratch(device, NBYTES, streams=STREAMS) as (*streams, address):
        for i, stream in enumerate(streams):
            for j in range(SINGLE_FILLS // 2):
                device.driver.set_async(address, i + 64 * (j % 2), NBYTES, stream)
            device.driver.device_synchronize()
            require_bytes(device.read(address, NBYTES), i + 64, f"on stream {i} of {STREAMS}")


@CASES.case("stream_query")
def stream_query(device: Device) -> None:
    """When stream_query() returns ISTHMUS_OK, the stream's work is done."""
    check_waiting(
        device, lambda used: wait_until_done(device, "stream_query", used), "when it returned ISTHMUS_OK"
    )


@CASES.case("event_synchronize")
def event_synchronize(device: Device) -> None:
    """After event_synchronize() the captured work is done."""

    def wait(used: int) -> None:
        with event_of(device) as event:
            device.driver.event_record(event, used)
            device.driver.event_synchronize(event)

    check_waiting(device, wait, "after event_synchronize()")


@CASES.case("event_record")
def record_again(device: Device) -> None:
    """A record replaces an earlier one whose work is outstanding."""
    with scratch(device, NBYTES, events=1) as (stream, event, address):
        for value in range(64, 64 + ATTEMPTS):
            device.driver.set_async(address, 0, NBYTES, stream)
            device.driver.event_record(event, stream)
            enqueue_fills(device, address, value, stream)
            device.driver.event_record(event, stream)
            device.driver.event_synchronize(event)
            require_bytes(device.read(address, NBYTES), value, "after the second record's work")


@CASES.case("event_query")
def event_query(device: Device) -> None:
    """When event_query() returns ISTHMUS_OK, the captured work is done."""

    def wait(used: int) -> None:
        with event_of(device) as event:
            device.driver.event_record(event, used)
            wait_until_done(device, "event_query", event)

    check_waiting(device, wait, "when it returned ISTHMUS_OK")


@CASES.case("stream_wait_event")
def stream_wait_event(device: Device) -> None:
    """A stream that waits for an event sees the results of the captured work."""
    driver = device.driver
    with (
        scratch(device, NBYTES, streams=2, events=1) as (maker, user, event, address),
        allocate_pinned(driver, NBYTES) as seen,
    ):
        for value, (first, second) in enumerate([(maker, user), (maker, 0), (0, user)] * 2, start=64):
            enqueue_fills(device, address, value, first)
            driver.event_record(event, first)
            driver.stream_wait_event(second, event)
            copy_out(driver, seen, address, second)
            driver.stream_synchronize(second)
            require_bytes(seen.copy(), value, "what the waiting stream read")
            driver.device_synchronize()


@CASES.case("stream_wait_event")
def wait_returns_at_once(device: Device) -> str | None:
    """stream_wait_event() does not wait for the captured work on the calling thread."""
    driver = device.driver
    outstanding = 0
    with stream_of(device) as maker, stream_of(device) as user, allocated(device, NBYTES) as address:
        for first, second in [(maker, user), (maker, 0), (0, user)] * 3:
            with event_of(device) as event:
                enqueue_fills(device, address, 64, first)
                driver.event_record(event, first)
                before = driver.status("event_query", event)
                driver.stream_wait_event(second, event)
                after = driver.status("event_query", event)
                driver.device_synchronize()
            outstanding += before == Status.NOT_READY
            if (before, after) == (Status.NOT_READY, Status.NOT_READY):
                break
        else:
            require(
                outstanding < 2, f"in {outstanding} of 9 calls the work was outstanding before, in none after"
            )
            return "the device works faster than the calls are made"
    return None


@CASES.case("stream_wait_event")
def unrecorded_event(device: Device) -> None:
    """A wait for an event that was never recorded does not block a stream."""
    with stream_of(device) as stream, event_of(device) as event, allocated(device, NBYTES) as address:
        device.driver.stream_wait_event(stream, event)
        enqueue_fills(device, address, 65, stream)
        wait_until_done(device, "stream_query", stream)
        require_bytes(device.read(address, NBYTES), 65, "work after the wait")


@CASES.case("stream_destroy")
def stream_destroy(device: Device) -> None:
    """Outstanding work of a destroyed stream still runs, and device_synchronize() waits for it."""
    with allocated(device, NBYTES) as address:
        stream = device.driver.result_of("stream_create", 0)
        enqueue_fills(device, address, 66, stream)
        device.driver.stream_destroy(stream)
        device.driver.device_synchronize()
        require_bytes(device.read(address, NBYTES), 66, "work of the destroyed stream")


@CASES.case("event_elapsed")
def event_elapsed(device: Device) -> None:
    """event_elapsed() returns milliseconds: positive, a good part of the time on the host, and not more."""
    driver = device.driver
    shares = []
    with scratch(device, NBYTES, events=2, flags=TIMING) as (stream, start, end, address):
        for _ in range(ATTEMPTS):
            early = ctypes.c_double(UNTOUCHED)
            began = time.monotonic()
            driver.event_record(start, stream)
            enqueue_fills(device, address, 67, stream)
            driver.event_record(end, stream)
            status = driver.status("event_elapsed", start, end, ctypes.byref(early))
            driver.event_synchronize(end)
            most = 1e3 * (time.monotonic() - began)
            found = driver.elapsed(start, end)
            require(
                0 < found <= 1.05 * most,
                f"{FILLS} fills of {NBYTES} bytes took {found} ms, expected at most {most}",
            )
            require(
                status == Status.OK or early.value == UNTOUCHED, f"with {status.name} it wrote to the output"
            )
            shares.append(found / most)
        share = max(shares)  # where other work delays this thread, it is less
        require(
            share >= LEAST_SHARE, f"{FILLS} fills took {share:.1%} of the time on the host, by their events"
        )
        back = ctypes.c_double(0)
        driver.status("event_elapsed", end, start, ctypes.byref(back))  # a driver may refuse this order
        require(back.value <= 0, f"from end to start it is {back.value} ms")
