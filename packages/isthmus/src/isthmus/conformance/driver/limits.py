"""Cases of limits: all memory of a device, one large allocation, what device_memory() counts, a thousand events."""

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    HOST_FUNCTIONS,
    MIB,
    Cases,
    allocate_pinned,
    allocated,
    gate,
    require,
    require_bytes,
    scratch,
)
from isthmus.conformance.driver.memory import ATTEMPTS, free_bytes, require_once
from isthmus.conformance.driver.order import TIMING
from isthmus.drivers.interface import Status

CASES = Cases()
MOST_BLOCKS = 1000  # of falling size, of which at most a few of each fit
PIECES = 64  # of a block, of which each is stamped
STAMP = 64
SMALL, SMALL_BYTES = 256, 64 << 10
PINNED_BYTES = 32 * MIB
INTEGRATED = 2  # ISTHMUS_PROPERTY_INTEGRATED
EVENTS = 1000

Block = tuple[int, int]  # address and size in bytes


@contextmanager
def all_memory(device: Device) -> Iterator[list[Block]]:
    """Allocate blocks of falling size for a block, until not one byte is available."""
    driver = device.driver
    blocks: list[Block] = []
    nbytes = driver.memory()[1] // 4
    try:
        while nbytes and len(blocks) < MOST_BLOCKS:
            address = ctypes.c_void_p()
            found = driver.status("memory_allocate", nbytes, ctypes.byref(address))
            if found == Status.OK:
                blocks.append((address.value or 0, nbytes))
            else:
                require(
                    found == Status.OUT_OF_MEMORY, f"for {nbytes} bytes a full device returned {found.name}"
                )
                nbytes //= 2
        yield blocks
    finally:
        driver.device_synchronize()
        for start, _ in blocks:
            driver.memory_free(start)


def stamps(blocks: list[Block]) -> Iterator[tuple[int, int, int]]:
    """Yield (address, bytes, value) of the start of every piece of every block, and of its last bytes."""
    for i, (start, nbytes) in enumerate(blocks):
        piece = max(STAMP, nbytes // PIECES)
        offsets = [*range(0, nbytes - STAMP, piece), max(0, nbytes - STAMP)]
        for j, offset in enumerate(offsets):
            end = offsets[j + 1] if j + 1 < len(offsets) else nbytes
            yield start + offset, min(STAMP, end - offset), 1 + (37 * i + 101 * j) % 251


def check_contents(device: Device, blocks: list[Block]) -> None:
    """Check that the blocks are disjoint and hold what is written to them."""
    for (start, nbytes), (following, _) in pairwise(sorted(blocks)):
        require(start + nbytes <= following, f"{nbytes} bytes at {start:#x} overlap those at {following:#x}")
    for address, nbytes, value in stamps(blocks):
        device.driver.set_async(address, value, nbytes, 0)
    device.driver.stream_synchronize(0)
    for address, nbytes, value in stamps(blocks):
        require_bytes(device.read(address, nbytes), value, f"{nbytes} bytes at {address:#x} of a full device")


def fill(device: Device, first: int) -> str:
    """Fill the device; return how the blocks and the figures of device_memory() disagree, or "".

    Args:
        first: free bytes before the first attempt, so that what each attempt loses adds up.
    """
    free, total = device.driver.memory()
    with all_memory(device) as blocks:
        held, left = sum(nbytes for _, nbytes in blocks), free_bytes(device)
        if held <= free:
            check_contents(device, blocks)
    after = free_bytes(device)
    if held < free - total // 64:
        return f"of {free} free bytes {held} could be allocated"
    if held > free:
        return f"{held} bytes could be allocated, but {free} were free"
    if left > total // 64:
        return f"not one more byte could be allocated, but device_memory() said that {left} were free"
    return "" if after >= first else f"{first} bytes were free before, {after} afterwards"


@CASES.case("memory_allocate")
def fill_the_device(device: Device) -> None:
    """All free memory but 1/64 of the total can be allocated and holds its contents; once freed, it is free again."""
    first = free_bytes(device)
    for _ in range(ATTEMPTS):
        problem = fill(device, first)
        if not problem:
            break
    require(not problem, problem)


@CASES.case("memory_allocate")
def largest_allocation(device: Device) -> str | None:
    """One allocation of a quarter of the total is possible where it is free."""
    free, total = device.driver.memory()
    if free < 3 * total // 8:
        return f"needs 3/8 of the memory, {free} of {total} bytes are free"
    with allocated(device, total // 4) as address:
        check_contents(device, [(address, total // 4)])
    return None


@CASES.case("device_memory")
def small_allocations_count(device: Device) -> None:
    """Free memory falls by small allocations too."""
    nbytes = min(SMALL_BYTES, free_bytes(device) // (4 * SMALL))
    least = SMALL * nbytes - 2 * MIB  # the rest of a unit may have been counted before

    def falls() -> bool:
        before = free_bytes(device)
        with ExitStack() as stack:
            for _ in range(SMALL):
                stack.callback(device.free, device.allocate(nbytes))
            return before - free_bytes(device) >= least

    require_once(falls, f"{SMALL} allocations of {nbytes} bytes lowered it by less than {least}")


@CASES.case("device_memory")
def pinned_memory_does_not_count(device: Device) -> str | None:
    """Pinned memory is not memory of a device that has its own."""
    if device.driver.properties(device.index).flags & INTEGRATED:
        return "the device shares the memory of the host"

    def stays() -> bool:
        before = free_bytes(device)
        with allocate_pinned(device.driver, PINNED_BYTES):
            return free_bytes(device) == before

    require_once(stays, f"{PINNED_BYTES} bytes of pinned memory changed the free memory")
    return None


@CASES.case("event_create", HOST_FUNCTIONS)
def thousand_events(device: Device) -> None:
    """A thousand events at once are done exactly when their own work is."""
    driver = device.driver
    with scratch(device, streams=2, events=EVENTS, flags=TIMING) as (held, free, *events):
        require(0 not in events and len(set(events)) == EVENTS, "a handle is null or not unique")
        with gate(driver, held, "event_record() or event_query()"):
            for i, event in enumerate(events):
                driver.event_record(event, free if i % 2 else held)
            driver.stream_synchronize(free)
            for i, event in enumerate(events):
                found, expected = (
                    driver.status("event_query", event),
                    Status.OK if i % 2 else Status.NOT_READY,
                )
                where = "the synchronized stream" if i % 2 else "the held stream"
                require(
                    found == expected,
                    f"event {i} of {EVENTS}, on {where}, was {found.name}, expected {expected.name}",
                )
        driver.stream_synchronize(held)
        for i, event in enumerate(events):
            found = driver.status("event_query", event)
            require(found == Status.OK, f"after its work event {i} of {EVENTS} was {found.name}")
        for pair in pairwise(events[::2]):
            require(driver.elapsed(*pair) >= 0, "an event precedes the one recorded before it on its stream")


@CASES.case("event_synchronize")
def thousand_events_in_turn(device: Device) -> None:
    """After event_synchronize() of any of a thousand events the work before it is done."""
    driver = device.driver
    used = EVENTS // 2  # the others are recorded on an idle stream, and done at once
    with scratch(device, EVENTS * STAMP, streams=2, events=EVENTS) as (stream, idle, *events, address):
        for i, event in enumerate(events[:used]):
            driver.set_async(address + i * STAMP, 1 + i % 251, STAMP, stream)
            driver.event_record(event, stream)
        for event in events[used:]:
            driver.event_record(event, idle)
        for i in (*range(0, used, 97), used - 1):
            driver.event_synchronize(events[i])
            found = device.read(address + i * STAMP, STAMP)
            require_bytes(found, 1 + i % 251, f"the fill before event {i} of {EVENTS}")
