"""Cases of activity records."""

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    MIB,
    Cases,
    allocate_pinned,
    allocated,
    copy_in,
    copy_out,
    on_thread,
    require,
    stream_of,
)
from isthmus.drivers import interface
from isthmus.drivers.interface import CopyKind

CASES = Cases()
COPY, SET = 2, 3  # ISTHMUS_ACTIVITY_COPY, ISTHMUS_ACTIVITY_SET
CLOCKS_NS = 1_000_000  # how far the clocks of host and device may differ
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class Record(NamedTuple):
    """A record of work on a stream; times in nanoseconds."""

    kind: int
    device: int
    stream: int
    nbytes: int
    correlation: int
    start: int
    end: int
    name: str


@contextmanager
def record_activity(device: Device) -> Iterator[list[Record]]:
    """Record a block; the list is filled when the block has ended."""
    structure = interface.structure("activity")
    found: list[Record] = []

    def receive(address: int, count: int, _: Any) -> None:
        size = ctypes.c_uint32.from_address(address).value
        for at in range(address, address + count * size, size):
            row = structure.from_address(at)
            place = (row.kind, row.device, row.stream or 0, row.bytes, row.correlation)
            found.append(Record(*place, row.start_ns, row.end_ns, (row.name or b"").decode(errors="replace")))

    callback = _Callback(receive)
    device.driver.activity_start(ctypes.cast(callback, ctypes.c_void_p), None)
    try:
        yield found
    finally:
        device.driver.activity_stop()
        del callback


def work(device: Device, stream: int) -> list[Record]:
    """Record a fill, a copy of each kind, and a fill of another thread; return the records of the stream."""
    driver = device.driver

    def fill_elsewhere() -> None:
        driver.device_set(device.index)
        driver.set_async(first, 2, 5, stream)

    with (
        allocated(device, MIB) as first,
        allocated(device, MIB) as second,
        allocate_pinned(driver, MIB) as host,
    ):
        with record_activity(device) as found:
            driver.activity_push_correlation(41)
            driver.set_async(first, 1, MIB, stream)
            copy_in(driver, second, host[:100], stream)
            driver.activity_push_correlation(42)
            driver.copy_async(second, first, MIB - 1, CopyKind.DEVICE_TO_DEVICE, stream)
            on_thread(fill_elsewhere)
            copy_out(driver, host[:7], first, stream)
            driver.activity_push_correlation(0)
            driver.stream_synchronize(stream)
        count = len(found)
        driver.set_async(first, 3, MIB, stream)
        driver.stream_synchronize(stream)
        require(len(found) == count, "work after activity_stop() was recorded")
    return [record for record in found if record.kind in (COPY, SET) and record.stream == stream]


@CASES.case("activity_start")
def records(device: Device) -> None:
    """Each copy and fill has one record: its kind, device, stream, bytes, correlation and a name."""
    expected = [(SET, MIB, 41), (COPY, 100, 41), (COPY, MIB - 1, 42), (SET, 5, 0), (COPY, 7, 42)]
    with stream_of(device) as stream:
        found = sorted(work(device, stream), key=lambda record: record.start)
    got = [(record.kind, record.nbytes, record.correlation) for record in found]
    require(sorted(got) == sorted(expected), f"kind, bytes and correlation are {got}, expected {expected}")
    require(all(record.device == device.index for record in found), "a record has another device")
    require(all(record.name for record in found), "a record has no name")


@CASES.case("activity_start", devices=2)
def records_of_every_device(device: Device) -> None:
    """Work on every device is recorded, with its device."""
    for index in (1, 0):
        other = Device(device.driver, index)
        with stream_of(other) as stream:
            found = {record.device for record in work(other, stream)}
        require(found == {index}, f"work on device {index} has records of devices {sorted(found)}")


@CASES.case("activity_start")
def record_times(device: Device) -> None:
    """Times of records are CLOCK_REALTIME, within the time of recording, and in the order of the stream."""
    with stream_of(device) as stream:
        began = time.time_ns()
        found = work(device, stream)
        ended = time.time_ns()
    require(len(found) == 5, f"{len(found)} records of 5 pieces of work on the stream")
    for record in found:
        inside = began - CLOCKS_NS <= record.start <= record.end <= ended + CLOCKS_NS
        require(
            inside, f"{record.name} from {record.start} to {record.end}, recorded from {began} to {ended}"
        )
    times = sorted((record.start, record.end) for record in found)
    overlap = max(end - start for (_, end), (start, _) in pairwise(times))
    require(overlap <= 0, f"two pieces of work on one stream overlap by {overlap} ns")


@CASES.case("activity_stop")
def record_again(device: Device) -> None:
    """Recording can be started again after it was stopped."""
    with stream_of(device) as stream:
        for _ in range(2):
            found = work(device, stream)
            require(len(found) == 5, f"{len(found)} records of 5 pieces of work on the stream")
