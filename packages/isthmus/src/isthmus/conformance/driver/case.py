"""Building blocks of driver cases: registration, scoped memory, streams and events, a gate that blocks a stream."""

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from isthmus.conformance.device import Device
from isthmus.drivers.driver import Driver
from isthmus.drivers.interface import CopyKind, Status

Check = Callable[[Device], str | None]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

HELD_SECONDS = 5.0  # time limit of a gate, so that a function that wrongly waits for it returns
WAIT_SECONDS = 0.05  # how long a case delays work
CANARY = 0xC5
MIB = 1 << 20
HOST_FUNCTIONS = "stream_host_function"  # functions that a gate needs
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_user_data = itertools.count(1)


class Violation(AssertionError):
    """The driver violates driver.h."""


class DriverCase(NamedTuple):
    """One rule of driver.h.

    Attributes:
        name: unique name.
        function: function of driver.h.
        text: the rule.
        check: raises if the device violates the rule; returns why it was not judged, or None.
    """

    name: str
    function: str
    text: str
    check: Check


class Cases:
    """The cases of one file, in order."""

    def __init__(self) -> None:
        self.all: list[DriverCase] = []

    def case(self, function: str, *needs: str, devices: int = 1) -> Callable[[Check], Check]:
        """Register a check, whose docstring is the rule; it may return why the device was not judged.

        Args:
            needs: optional functions that the check needs.
            devices: number of devices that the check needs.
        """

        def register(body: Check) -> Check:
            def check(device: Device) -> str | None:
                absent = [name for name in (function, *needs) if not device.driver.has(name)]
                if absent:
                    return f"{absent[0]} absent"
                if device.driver.count() < devices:
                    return f"needs {devices} devices"
                device.driver.device_set(device.index)
                try:
                    return body(device)
                finally:
                    device.driver.device_set(device.index)

            rule = (body.__doc__ or "").removesuffix(".")
            self.all.append(DriverCase(body.__name__, function, rule, check))
            return body

        return register


def require(condition: bool, message: str) -> None:
    """Raise Violation with the message unless the condition holds."""
    if not condition:
        raise Violation(message)


def require_status(driver: Driver, expected: Status, function: str, *arguments: Any) -> None:
    """Call a function that must fail with a status and set last_error() on this thread."""
    status = driver.status(function, *arguments)
    require(status == expected, f"{function} returned {status.name}, expected {expected.name}")
    require(driver.last_error() != "", f"{function} failed without a message in last_error()")


def each_device(driver: Driver) -> Iterator[int]:
    """Make each device current in turn."""
    for index in range(driver.count()):
        driver.device_set(index)
        yield index


def pattern(nbytes: int, seed: int = 0) -> Bytes:
    """Return random bytes."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


@contextmanager
def allocated(device: Device, nbytes: int) -> Iterator[int]:
    """Allocate device memory for a block."""
    address = device.allocate(nbytes)
    try:
        yield address
    finally:
        device.driver.device_synchronize()
        device.free(address)


@contextmanager
def guarded_memory(device: Device, offset: int, nbytes: int) -> Iterator[int]:
    """Allocate device memory at an offset, surrounded by canaries that must not change."""
    whole = offset + nbytes + 64
    with allocated(device, whole) as base:
        device.write(base, np.full(whole, CANARY, np.uint8))
        yield base + offset
        device.driver.device_synchronize()
        found = np.frombuffer(device.read(base, whole), np.uint8)
        require(bool((found[:offset] == CANARY).all()), "bytes before the destination were written")
        require(bool((found[offset + nbytes :] == CANARY).all()), "bytes after the destination were written")


@contextmanager
def allocate_pinned(driver: Driver, nbytes: int) -> Iterator[Bytes]:
    """Allocate pinned host memory for a block, as an array."""
    address = driver.result_of("host_allocate", nbytes)
    try:
        yield np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
    finally:
        driver.device_synchronize()
        driver.host_free(address)


@contextmanager
def stream_of(device: Device, priority: int = 0) -> Iterator[int]:
    """Create a stream for a block."""
    stream = device.driver.result_of("stream_create", priority)
    try:
        yield stream
    finally:
        device.driver.stream_destroy(stream)


@contextmanager
def event_of(device: Device, flags: int = 0) -> Iterator[int]:
    """Create an event for a block."""
    event = device.driver.result_of("event_create", flags)
    try:
        yield event
    finally:
        device.driver.event_destroy(event)


@contextmanager
def scratch(
    device: Device, *sizes: int, streams: int = 1, events: int = 0, flags: int = 0
) -> Iterator[list[int]]:
    """Make streams, events with flags, and memory of some sizes for a block, in this order."""
    with ExitStack() as stack:
        made = [stack.enter_context(stream_of(device)) for _ in range(streams)]
        made += [stack.enter_context(event_of(device, flags)) for _ in range(events)]
        yield made + [stack.enter_context(allocated(device, nbytes)) for nbytes in sizes]


def host_function(driver: Driver, stream: int, body: Callable[[], object]) -> Callable[[], None]:
    """Enqueue a host function; return a function that waits until it has run and must be called."""
    done = threading.Event()
    given, received = next(_user_data), []

    def run(user_data: int | None) -> None:
        received.append(user_data)
        body()
        done.set()

    entry = _HostFunction(run)
    driver.stream_host_function(stream, ctypes.cast(entry, ctypes.c_void_p), given)

    def wait() -> None:
        require(done.wait(2 * HELD_SECONDS), "a host function was never called")
        require(received == [given], f"a host function received user_data {received}, expected [{given}]")
        entry.argtypes  # keeps the C entry until here  # noqa: B018

    return wait


@contextmanager
def gate(driver: Driver, stream: int, what: str = "") -> Iterator[Callable[[], None]]:
    """Block a stream until the yielded function is called, or the block ends.

    If the stream has no earlier work, the block begins when the stream is blocked, and nothing is left in its queue.

    Raises:
        Violation: a call inside the block waited for the stream; ``what`` names the call, "" allows waiting.
    """
    reached, opened = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def block() -> None:
        reached.set()
        in_time.append(opened.wait(HELD_SECONDS))

    wait = host_function(driver, stream, block)
    reached.wait(WAIT_SECONDS)
    try:
        yield opened.set
    finally:
        opened.set()
        wait()
    require(in_time == [True] or not what, f"{what} waited for previously enqueued work")


def copy_in(driver: Driver, to: int, host: Bytes, stream: int) -> None:
    """Enqueue a copy from host memory."""
    driver.copy_async(to, host.ctypes.data, host.nbytes, CopyKind.HOST_TO_DEVICE, stream)


def copy_out(driver: Driver, host: Bytes, source: int, stream: int) -> None:
    """Enqueue a copy to host memory."""
    driver.copy_async(host.ctypes.data, source, host.nbytes, CopyKind.DEVICE_TO_HOST, stream)


def require_bytes(found: Bytes | bytes, expected: Bytes | int, what: str) -> None:
    """Raise Violation with the first byte that differs from those expected, or from one value."""
    got = np.frombuffer(found, np.uint8)
    expected = np.broadcast_to(np.asarray(expected, np.uint8), got.shape)
    wrong = np.flatnonzero(got != expected)
    if wrong.size:
        at = int(wrong[0])
        raise Violation(
            f"{what}: {wrong.size} of {expected.size} bytes are wrong; at {at} got {got[at]}, expected {expected[at]}"
        )


def on_thread(body: Callable[[], Any]) -> Any:
    """Run body on a new thread; return its result or raise its exception."""
    result: list[Any] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            result.append(body())
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if error:
        raise error[0]
    return result[0]
