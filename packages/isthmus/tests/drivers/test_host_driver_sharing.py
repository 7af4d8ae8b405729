"""The host chip between processes: memory and events that another process exports."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.drivers import interface
from tests.helpers import host_driver as hd
from tests.helpers.host_driver import MIB, Driver, DriverError, check_refused

PEER_LOST = 8
SHARED = 2  # ISTHMUS_EVENT_SHARED
Handle = interface.structure("ipc_handle")

MAKER = """
import threading
from isthmus.drivers import interface
driver = Driver(); driver.initialize()
driver.allocate(512)
stream, event = driver.result_of("stream_create", 0), driver.result_of("event_create", 2)
address = driver.allocate(3 * MIB // 2)
def exported(function, what):
    handle = interface.structure("ipc_handle")()
    getattr(driver, function)(what, ctypes.byref(handle))
    return bytes(handle).hex()
driver.set_async(address, 7, 3 * MIB // 2, stream); driver.stream_synchronize(stream)
print(exported("memory_export", address), exported("event_export", event), flush=True)
gate = threading.Event()
for line in sys.stdin:
    if line == "record\\n":
        driver.enqueue(stream, gate.wait)
        driver.set_async(address, 9, MIB, stream)
        driver.event_record(event, stream)
    elif line == "open\\n":
        gate.set()
    elif line == "read\\n":
        print(driver.read(address, 1)[0], flush=True)
        continue
    elif line == "die\\n":
        os._exit(0)
    print("done", flush=True)
"""


class Maker:
    """Another process, with memory filled with 7 and an event, that executes commands."""

    def __init__(self) -> None:
        self.process = hd.start_script("import sys\n" + MAKER)
        self.memory, self.event = (
            Handle.from_buffer_copy(bytes.fromhex(word)) for word in self._answer().split()
        )

    def tell(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def maker() -> Iterator[Maker]:
    made = Maker()
    yield made
    made.process.kill()
    made.process.communicate(timeout=60)


@pytest.fixture
def driver() -> Iterator[Driver]:
    with hd.of_this_process() as driver:
        driver.device_set(0)
        yield driver


def test_memory_is_the_same_bytes(driver: Driver, maker: Maker) -> None:
    address = driver.result_of("memory_import", ctypes.byref(maker.memory))
    assert driver.attributes(address + MIB) == (hd.MEMORY_DEVICE, 0)
    assert driver.read(address, 3 * MIB // 2) == bytes([7]) * (3 * MIB // 2)
    driver.write(address, bytes([5]) * 16)
    assert maker.tell("read") == "5"
    maker.process.kill()
    maker.process.wait(60)
    assert driver.read(address, 1) == b"\x05", "the bytes outlive their maker while they are open"
    driver.memory_close(address)
    with pytest.raises(DriverError, match="was not returned by memory_import"):
        driver.memory_close(address)
    check_refused(driver, hd.INVALID_ARGUMENT, "copy: ", "read", address, 1)


def test_a_stream_waits_for_another_process(driver: Driver, maker: Maker) -> None:
    event = driver.result_of("event_import", ctypes.byref(maker.event))
    address = driver.result_of("memory_import", ctypes.byref(maker.memory))
    stream = driver.result_of("stream_create", 0)
    assert driver.status("event_query", event) == hd.OK
    maker.tell("record")
    assert driver.status("event_query", event) == hd.NOT_READY
    driver.stream_wait_event(stream, event)
    reached = threading.Event()
    driver.enqueue(stream, reached.set)
    assert driver.status("stream_query", stream) == hd.NOT_READY and not reached.is_set()
    maker.tell("open")
    driver.stream_synchronize(stream)
    assert reached.is_set() and driver.status("event_query", event) == hd.OK
    assert driver.read(address, 1) == b"\x09"
    driver.event_synchronize(event)
    driver.event_destroy(event)
    driver.memory_close(address)
    driver.stream_destroy(stream)


def test_a_recording_process_that_exits_is_named(driver: Driver, maker: Maker) -> None:
    event = driver.result_of("event_import", ctypes.byref(maker.event))
    stream = driver.result_of("stream_create", 0)
    maker.tell("record")
    driver.stream_wait_event(stream, event)
    maker.tell("die")
    words = f"process {maker.process.pid} recorded a shared event and exited before its work was done"
    for function, argument in (("stream_synchronize", stream), ("event_synchronize", event)):
        check_refused(driver, PEER_LOST, words, function, argument)
    maker.process.wait(60)
    with pytest.raises(DriverError, match=f"the event of process {maker.process.pid} cannot be opened"):
        driver.result_of("event_import", ctypes.byref(maker.event))


def test_what_cannot_be_shared(driver: Driver) -> None:
    handle, pointer = Handle(), ctypes.c_void_p()
    address = driver.allocate(1024)
    plain = driver.result_of("event_create", 0)
    refusals = [
        ("memory_export", (address + 512, ctypes.byref(handle)), "is not the start of an allocation"),
        ("memory_export", (id(handle), ctypes.byref(handle)), "is not memory of a device"),
        ("event_export", (plain, ctypes.byref(handle)), "the event is not shared"),
        ("memory_import", (ctypes.byref(handle), ctypes.byref(pointer)), "not the handle of shared memory"),
        ("event_import", (ctypes.byref(handle), ctypes.byref(pointer)), "not the handle of shared event"),
        ("event_create", (SHARED | hd.EVENT_TIMING, ctypes.byref(pointer)), "has no timing"),
    ]
    for function, arguments, words in refusals:
        with pytest.raises(DriverError, match=words):
            getattr(driver, function)(*arguments)
    driver.memory_export(address, ctypes.byref(handle))
    with pytest.raises(DriverError, match="not the handle of shared event"):
        driver.event_import(ctypes.byref(handle), ctypes.byref(pointer))
    driver.memory_free(address)


def test_descriptors_are_closed(driver: Driver, maker: Maker) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for _ in range(20):
        driver.event_destroy(driver.result_of("event_create", SHARED))
        driver.event_destroy(driver.result_of("event_import", ctypes.byref(maker.event)))
        driver.memory_close(driver.result_of("memory_import", ctypes.byref(maker.memory)))
    assert count() == before
