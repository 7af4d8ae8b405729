"""The host chip: what the driver cases of the conformance suite do not ask of its streams and events.

A gate, opened by the test, makes every order certain without timing.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from tests.helpers import host_driver as hd
from tests.helpers.host_driver import Driver, DriverError, check_refused


@pytest.fixture(scope="module", params=["0", "1"], ids=["plain", "strict"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with hd.open_driver(tmp_path_factory.mktemp("streams"), ISTHMUS_HOST_STRICT=request.param) as driver:
        yield driver


@pytest.fixture
def stream(driver: Driver) -> Iterator[int]:
    driver.device_set(0)
    made = driver.result_of("stream_create", 0)
    yield made
    driver.stream_synchronize(made)
    driver.stream_destroy(made)


@pytest.fixture
def other(driver: Driver) -> Iterator[int]:
    """A stream of the other device."""
    driver.device_set(1)
    made = driver.result_of("stream_create", -1)
    driver.device_set(0)
    yield made
    driver.stream_synchronize(made)
    driver.stream_destroy(made)


@pytest.fixture
def event(driver: Driver) -> Iterator[int]:
    made = driver.result_of("event_create", hd.EVENT_TIMING)
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


def test_the_default_stream_is_not_destroyed(driver: Driver) -> None:
    driver.device_set(0)
    with pytest.raises(DriverError, match="default stream of chip 0"):
        driver.stream_destroy(driver.result_of("stream_default"))


def test_an_event_recorded_on_an_idle_stream_is_done(driver: Driver, stream: int, event: int) -> None:
    driver.event_record(event, stream)
    assert driver.status("event_query", event) == hd.OK


def test_elapsed_time_needs_timing_and_finished_records(driver: Driver, stream: int, event: int) -> None:
    untimed = driver.result_of("event_create", 0)
    with pytest.raises(DriverError, match="event start was never recorded"):
        driver.elapsed(event, event)
    with pytest.raises(DriverError, match="event end has no timing"):
        driver.elapsed(event, untimed)
    with Gate(driver, stream):
        driver.event_record(event, stream)
        check_refused(driver, hd.NOT_READY, "not done yet", "elapsed", event, event)
    driver.event_destroy(untimed)


def test_failure_of_a_task_is_reported_once_by_synchronize(driver: Driver, stream: int) -> None:
    device = driver.allocate(4096)
    for synchronize in (("stream_synchronize", stream), ("device_synchronize",)):
        gate = Gate(driver, stream).shut()
        driver.set_async(device, 1, 4096, stream)
        driver.memory_free(device)
        gate.opened.set()
        check_refused(
            driver, hd.DEVICE_ERROR, f"4096 bytes at {hex(device)} after they were freed", *synchronize
        )
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
        assert driver.status("stream_query", other) == hd.NOT_READY


def test_wrapped_streams(driver: Driver, stream: int) -> None:
    assert driver.result_of("stream_wrap", stream) == stream
    with pytest.raises(DriverError, match="not a stream of the host chip"):
        driver.result_of("stream_wrap", stream + 8)
    no_stream = ctypes.create_string_buffer(256)
    with pytest.raises(DriverError, match="is not a stream"):
        driver.stream_query(no_stream)
