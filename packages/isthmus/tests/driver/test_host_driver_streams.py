"""The host chip: streams and events. A gate, opened by the test, makes every order certain without timing."""

from __future__ import annotations

import ctypes
import shutil
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.helpers import host_driver as hd
from tests.helpers.host_driver import MIB, Driver, DriverError


@pytest.fixture(scope="module", params=["0", "1"], ids=["plain", "strict"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("streams")
    folder.chmod(0o700)
    library = Path(shutil.copy(hd.LIBRARY, folder / "lib.so"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.setenv("ISTHMUS_HOST_DEVICES", "2")
        patch.setenv("ISTHMUS_HOST_MEMORY", "64MiB")
        patch.setenv("ISTHMUS_HOST_STRICT", request.param)
        driver = Driver(library)
        driver.initialize()
        driver.memory(0)
        driver.memory(1)
    yield driver
    driver.finalize()


@pytest.fixture
def stream(driver: Driver) -> Iterator[int]:
    driver.device_set(0)
    made = driver.made("stream_create", 0)
    yield made
    driver.stream_synchronize(made)
    driver.stream_destroy(made)


@pytest.fixture
def other(driver: Driver) -> Iterator[int]:
    """A stream of the other device."""
    driver.device_set(1)
    made = driver.made("stream_create", -1)
    driver.device_set(0)
    yield made
    driver.stream_synchronize(made)
    driver.stream_destroy(made)


@pytest.fixture
def event(driver: Driver) -> Iterator[int]:
    made = driver.made("event_create", hd.EVENT_TIMING)
    yield made
    driver.event_destroy(made)


class Gate:
    """Block a stream until opened; leaving the context opens it and waits for the stream."""

    def __init__(self, driver: Driver, stream: int | None) -> None:
        self.driver, self.stream = driver, stream
        self.opened, self.reached = threading.Event(), threading.Event()
        self.opened_in_time = True

    def shut(self) -> Gate:
        self.driver.enqueue(self.stream, self.pass_through)
        assert self.reached.wait(60)
        return self

    def pass_through(self) -> None:
        self.reached.set()
        self.opened_in_time = self.opened.wait(60)

    def __enter__(self) -> Gate:
        return self.shut()

    def __exit__(self, *_: object) -> None:
        self.opened.set()
        self.driver.stream_synchronize(self.stream)
        assert self.opened_in_time, "the test itself waited for the stream that it held up"


def status(driver: Driver, function: str, *arguments: object) -> int:
    result: int = getattr(driver.table, function)(*arguments)
    return result


def test_work_runs_in_order(driver: Driver, stream: int) -> None:
    order: list[int] = []
    for number in range(100):
        driver.enqueue(stream, partial(order.append, number))
    driver.stream_synchronize(stream)
    assert order == list(range(100))


def test_default_stream_is_null_and_has_a_handle(driver: Driver) -> None:
    driver.device_set(0)
    handle = driver.made("stream_default")
    with Gate(driver, None):
        assert status(driver, "stream_query", handle) == hd.NOT_READY
        driver.device_set(1)
        assert status(driver, "stream_query", None) == hd.OK
        driver.device_set(0)
    assert status(driver, "stream_query", handle) == hd.OK
    with pytest.raises(DriverError, match="default stream of chip 0"):
        driver.stream_destroy(handle)


@pytest.mark.parametrize("size", [8, 4 * MIB])
def test_pinned_copies_are_asynchronous(driver: Driver, stream: int, size: int) -> None:
    device, pinned = driver.allocate(size), driver.made("host_allocate", size)
    driver.write(device, b"\1" * size)
    ctypes.memset(pinned, 2, size)
    with Gate(driver, stream):
        driver.copy_async(device, pinned, size, hd.HOST_TO_DEVICE, stream)
        driver.copy_async(pinned, device, size, hd.DEVICE_TO_HOST, stream)
        driver.set_async(device, 3, size, stream)
        assert driver.read(device, size) == b"\1" * size
        assert status(driver, "stream_query", stream) == hd.NOT_READY
    assert driver.read(device, size) == b"\3" * size
    assert ctypes.string_at(pinned, size) == b"\2" * size
    driver.memory_free(device)
    driver.host_free(pinned)


@pytest.mark.parametrize("size", [8, 4 * MIB])
def test_pageable_copies_are_done_when_they_return(driver: Driver, stream: int, size: int) -> None:
    device = driver.allocate(size)
    back = ctypes.create_string_buffer(size)
    driver.copy_async(device, b"\5" * size, size, hd.HOST_TO_DEVICE, stream)
    driver.copy_async(back, device, size, hd.DEVICE_TO_HOST, stream)
    assert back.raw == b"\5" * size
    driver.memory_free(device)


def test_streams_are_independent(driver: Driver, stream: int) -> None:
    free = driver.made("stream_create", 0)
    ran: list[str] = []
    with Gate(driver, stream):
        driver.enqueue(free, partial(ran.append, "free"))
        driver.stream_synchronize(free)
        assert ran == ["free"]
        assert status(driver, "stream_query", stream) == hd.NOT_READY
    driver.stream_destroy(free)


def test_event_follows_its_stream(driver: Driver, stream: int, event: int) -> None:
    assert status(driver, "event_query", event) == hd.OK, "never recorded"
    driver.event_synchronize(event)
    driver.event_record(event, stream)
    assert status(driver, "event_query", event) == hd.OK, "recorded on an idle stream"
    with Gate(driver, stream):
        driver.event_record(event, stream)
        assert status(driver, "event_query", event) == hd.NOT_READY
    driver.event_synchronize(event)
    assert status(driver, "event_query", event) == hd.OK


def test_stream_waits_for_an_event_of_another_device(
    driver: Driver, stream: int, other: int, event: int
) -> None:
    order: list[str] = []
    with Gate(driver, stream):
        driver.enqueue(stream, partial(order.append, "first"))
        driver.event_record(event, stream)
        driver.stream_wait_event(other, event)
        driver.enqueue(other, partial(order.append, "second"))
        assert status(driver, "stream_query", other) == hd.NOT_READY
        assert order == []
    driver.stream_synchronize(other)
    assert order == ["first", "second"]


def test_wait_means_the_record_at_the_time_of_the_call(
    driver: Driver, stream: int, other: int, event: int
) -> None:
    ran = threading.Event()
    with Gate(driver, other):
        driver.event_record(event, other)
        with Gate(driver, stream):
            driver.stream_wait_event(other, event)  # its own past: no wait
            driver.event_record(event, stream)
            assert status(driver, "event_query", event) == hd.NOT_READY
            driver.event_record(event, None)  # the default stream is idle
            assert status(driver, "event_query", event) == hd.OK
            driver.stream_wait_event(None, event)
            driver.enqueue(None, ran.set)
            driver.stream_synchronize(None)
            assert ran.is_set(), "the default stream waited for a record that was replaced"


def test_event_may_be_destroyed_while_a_stream_waits(driver: Driver, stream: int, other: int) -> None:
    event = driver.made("event_create", 0)
    order: list[str] = []
    with Gate(driver, stream):
        driver.enqueue(stream, partial(order.append, "first"))
        driver.event_record(event, stream)
        driver.stream_wait_event(other, event)
        driver.enqueue(other, partial(order.append, "second"))
        driver.event_destroy(event)
    driver.stream_synchronize(other)
    assert order == ["first", "second"]


def test_elapsed_time_is_real(driver: Driver, stream: int) -> None:
    start, end = (driver.made("event_create", hd.EVENT_TIMING) for _ in range(2))
    before = time.monotonic()
    driver.event_record(start, stream)
    driver.enqueue(stream, partial(time.sleep, 0.02))
    driver.event_record(end, stream)
    driver.event_synchronize(end)
    bound = (time.monotonic() - before) * 1e3
    assert 20.0 <= driver.elapsed(start, end) <= bound
    assert driver.elapsed(end, start) == -driver.elapsed(start, end)
    driver.event_destroy(start)
    driver.event_destroy(end)


def test_elapsed_time_needs_timing_and_finished_records(driver: Driver, stream: int, event: int) -> None:
    untimed = driver.made("event_create", 0)
    with pytest.raises(DriverError, match="event start was never recorded"):
        driver.elapsed(event, event)
    with pytest.raises(DriverError, match="event end has no timing"):
        driver.elapsed(event, untimed)
    with Gate(driver, stream):
        driver.event_record(event, stream)
        with pytest.raises(DriverError, match="not done yet") as caught:
            driver.elapsed(event, event)
        assert caught.value.status == hd.NOT_READY
    driver.event_destroy(untimed)


def test_destroyed_stream_finishes_its_work(driver: Driver, event: int) -> None:
    driver.device_set(0)
    doomed = driver.made("stream_create", 0)
    device = driver.allocate(4)
    driver.write(device, bytes(4))
    gate = Gate(driver, doomed).shut()
    driver.set_async(device, 9, 4, doomed)
    driver.event_record(event, doomed)
    driver.stream_destroy(doomed)
    assert driver.read(device, 4) == bytes(4)
    gate.opened.set()
    driver.event_synchronize(event)
    assert driver.read(device, 4) == b"\t" * 4
    driver.memory_free(device)


def test_failure_of_a_task_is_reported_once_by_synchronize(driver: Driver, stream: int) -> None:
    device = driver.allocate(4096)
    for synchronize in (partial(driver.stream_synchronize, stream), driver.device_synchronize):
        gate = Gate(driver, stream).shut()
        driver.set_async(device, 1, 4096, stream)
        driver.memory_free(device)
        gate.opened.set()
        with pytest.raises(DriverError, match=f"4096 bytes at {hex(device)} after they were freed") as caught:
            synchronize()
        assert caught.value.status == hd.DEVICE_ERROR
        driver.stream_synchronize(stream)
        device = driver.allocate(4096)
    driver.memory_free(device)


def test_device_synchronize_waits_for_all_streams_of_one_device(
    driver: Driver, stream: int, other: int
) -> None:
    ran: list[str] = []
    with Gate(driver, other):
        driver.enqueue(stream, partial(ran.append, "created"))
        driver.enqueue(None, partial(ran.append, "default"))
        driver.device_synchronize()
        assert sorted(ran) == ["created", "default"]
        assert status(driver, "stream_query", other) == hd.NOT_READY


def test_priorities_and_wrapped_streams(driver: Driver, stream: int) -> None:
    lowest, highest = ctypes.c_int32(), ctypes.c_int32()
    driver.stream_priority_range(ctypes.byref(lowest), ctypes.byref(highest))
    assert highest.value <= lowest.value
    assert driver.made("stream_wrap", stream) == stream
    with pytest.raises(DriverError, match="not a stream of the host chip"):
        driver.made("stream_wrap", stream + 8)
    no_stream = ctypes.create_string_buffer(256)
    with pytest.raises(DriverError, match="is not a stream"):
        driver.stream_query(no_stream)


def test_many_threads_on_one_stream(driver: Driver, stream: int) -> None:
    size, rounds = 256, 200
    devices = [driver.allocate(size) for _ in range(4)]
    failures: list[BaseException] = []

    def use(number: int, device: int) -> None:
        try:
            event = driver.made("event_create", 0)
            for step in range(rounds):
                value = (number * rounds + step) % 256
                driver.set_async(device, value, size, stream)
                driver.event_record(event, stream)
                driver.event_synchronize(event)
                assert driver.read(device, size) == bytes([value]) * size
            driver.event_destroy(event)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=use, args=(n, device)) for n, device in enumerate(devices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for device in devices:
        driver.memory_free(device)
