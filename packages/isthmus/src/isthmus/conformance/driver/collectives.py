"""Cases of collectives: the ranks are threads of this process, one for each of at most two devices."""

import ctypes
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import HOST_FUNCTIONS, Cases, Check, gate, require
from isthmus.drivers import interface
from isthmus.drivers.driver import Driver
from isthmus.drivers.interface import Status

CASES = Cases()
COUNTS = (1, 1003, 100_003)
TIMEOUT_MS = 10_000
FLOAT32 = 7  # ISTHMUS_FLOAT32
REDUCTIONS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "sum": (0, lambda rows: rows.sum(0)),
    "product": (1, lambda rows: rows.prod(0)),
    "min": (2, lambda rows: rows.min(0)),
    "max": (3, lambda rows: rows.max(0)),
    "avg": (4, lambda rows: rows.mean(0)),
}
SUM, PREMUL_SUM = 0, 8
DTYPES, OPS = 17, 9  # numbers of isthmus_dtype and isthmus_reduce_op
Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass
class Rank:
    """One rank of a communicator, on the thread that made it.

    Attributes:
        driver: the driver; the rank's device is current.
        rank: number of the rank.
        world: number of ranks.
        comm: handle of the communicator.
        stream: a stream of the rank's device.
        allocations: device memory, freed at the end.
    """

    driver: Driver
    rank: int
    world: int
    comm: int
    stream: int
    allocations: list[int]

    def place(self, values: np.ndarray[Any, Any]) -> int:
        """Copy an array to new device memory, in the order of the stream."""
        address = self.driver.result_of("memory_allocate", max(values.nbytes, 4))
        self.allocations.append(address)
        self.driver.write(address, values)
        return address

    def read(self, address: int, count: int) -> Floats:
        """Wait for the stream and return memory."""
        self.driver.stream_synchronize(self.stream)
        found = np.empty(count, np.float32)
        self.driver.read_into(found, address)
        return found

    def require(self, address: int, expected: Floats, what: str) -> None:
        """Raise Violation unless memory has the expected content after the stream's work."""
        found = self.read(address, expected.size)
        wrong = np.flatnonzero(found != expected)
        if wrong.size:
            at = int(wrong[0])
            require(
                False,
                f"{what}, rank {self.rank} of {self.world}: [{at}] is {found[at]}, expected {expected[at]}",
            )


def reductions(driver: Driver) -> list[tuple[str, int, Callable[[Any], Any]]]:
    """Return the reductions of float32 that the driver supports, the sum at least: name, number, expectation."""
    return [(name, op, f) for name, (op, f) in REDUCTIONS.items() if op == SUM or driver.reduces(FLOAT32, op)]


def values(rank: int, count: int) -> Floats:
    """Return the input of a rank: small integers, whose sums and products are exact."""
    return ((np.arange(count) * (3 + rank) + rank) % 7 + 1).astype(np.float32)


def rows(world: int, count: int) -> Floats:
    """Return the inputs of all ranks, shape (world, count)."""
    return np.stack([values(rank, count) for rank in range(world)])


def on_ranks(device: Device, body: Callable[[Rank], None], timeout_ms: int = TIMEOUT_MS) -> None:
    """Run body on every rank, with the timeout of its communicator; raise the first failure."""
    driver = device.driver
    world = min(driver.count(), 2)
    identity = driver.new_id()
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            _on_rank(driver, identity, (rank, world, timeout_ms), body)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4e-3 * TIMEOUT_MS)
    require(not any(thread.is_alive() for thread in threads), "a rank waits without end")
    if failures:
        raise failures[0]


def on_each_rank(body: Callable[[Rank], None]) -> Check:
    """Make a check of what each rank does."""

    @functools.wraps(body)
    def check(device: Device) -> None:
        on_ranks(device, body)

    return check


def _on_rank(
    driver: Driver, identity: Any, place: tuple[int, int, int], body: Callable[[Rank], None]
) -> None:
    rank, world, timeout_ms = place
    driver.device_set(rank if world > 1 else 0)
    kind = interface.structure("comm_options")
    options = kind(ctypes.sizeof(kind), rank, world, timeout_ms, b"conformance")
    comm = driver.result_of("comm_create", identity, ctypes.byref(options))
    here = Rank(driver, rank, world, comm, driver.result_of("stream_create", 0), [])
    try:
        body(here)
    finally:
        driver.device_synchronize()
        driver.comm_destroy(comm)
        driver.stream_destroy(here.stream)
        for address in here.allocations:
            driver.memory_free(address)


@CASES.case("all_reduce")
@on_each_rank
def all_reduce(here: Rank) -> None:
    """all_reduce() reduces with each operation, in place and not, and leaves its input unchanged."""
    for count in COUNTS:
        for name, op, reduce in reductions(here.driver):
            data, expected = values(here.rank, count), reduce(rows(here.world, count)).astype(np.float32)
            source, target = here.place(data), here.place(np.zeros(count, np.float32))
            arguments = (count, FLOAT32, op, None, here.comm, here.stream)
            here.driver.all_reduce(target, source, *arguments)
            here.require(target, expected, f"{name} of {count}")
            here.require(source, data, f"the input of {name} of {count}")
            here.driver.all_reduce(source, source, *arguments)
            here.require(source, expected, f"{name} of {count} in place")


@CASES.case("all_reduce")
@on_each_rank
def multiplied_sum(here: Rank) -> None:
    """ISTHMUS_PREMUL_SUM multiplies each rank's input by its own factor, unless the driver does not support it."""
    count = 1003
    factor = ctypes.c_float(2.0 + here.rank)
    source = here.place(values(here.rank, count))
    arguments = (count, FLOAT32, PREMUL_SUM, ctypes.byref(factor), here.comm, here.stream)
    found = here.driver.status("all_reduce", source, source, *arguments)
    require(found in (Status.OK, Status.UNSUPPORTED), f"it returned {found.name}")
    if found == Status.OK:
        factors = np.arange(2, 2 + here.world, dtype=np.float32)[:, None]
        here.require(source, (factors * rows(here.world, count)).sum(0), "the sum")


@CASES.case("comm_reduces")
@on_each_rank
def supported(here: Rank) -> None:
    """all_reduce() returns ISTHMUS_UNSUPPORTED for the pairs for which comm_reduces() does, and for no others."""
    buffer, factor = here.place(np.zeros(64, np.float32)), (ctypes.c_char * 16)()
    for dtype in range(DTYPES):
        for op in range(OPS):
            said = here.driver.status("comm_reduces", dtype, op)
            arguments = (4, dtype, op, ctypes.byref(factor), here.comm, here.stream)
            found = here.driver.status("all_reduce", buffer, buffer, *arguments)
            what = f"for dtype {dtype} and operation {op} comm_reduces() returned {said.name}"
            require(said in (Status.OK, Status.UNSUPPORTED), what)
            require(found == said, f"{what}, all_reduce() {found.name}")


@CASES.case("reduce")
@on_each_rank
def reduce_to_root(here: Rank) -> None:
    """reduce() reduces with each operation, and writes the result on the root only."""
    count = 1003
    for root in range(here.world):
        for name, op, reduce in reductions(here.driver):
            untouched = np.full(count, -5, np.float32)
            source, target = here.place(values(here.rank, count)), here.place(untouched)
            here.driver.reduce(target, source, count, FLOAT32, op, None, root, here.comm, here.stream)
            expected = reduce(rows(here.world, count)) if here.rank == root else untouched
            here.require(target, expected.astype(np.float32), f"{name} to root {root}")


@CASES.case("broadcast")
@on_each_rank
def broadcast(here: Rank) -> None:
    """broadcast() copies from each root to all ranks."""
    for count in COUNTS:
        for root in range(here.world):
            buffer = here.place(values(here.rank, count))
            here.driver.broadcast(buffer, count, FLOAT32, root, here.comm, here.stream)
            here.require(buffer, values(root, count), f"{count} from root {root}")


@CASES.case("all_gather")
@on_each_rank
def all_gather(here: Rank) -> None:
    """all_gather() concatenates the inputs in the order of the ranks."""
    for count in COUNTS:
        source, target = (
            here.place(values(here.rank, count)),
            here.place(np.zeros(here.world * count, np.float32)),
        )
        here.driver.all_gather(target, source, count, FLOAT32, here.comm, here.stream)
        expected = rows(here.world, count).reshape(-1)
        here.require(target, expected, f"{count} of each rank")
        whole = np.zeros((here.world, count), np.float32)
        whole[here.rank] = values(here.rank, count)
        target = here.place(whole)
        source = target + here.rank * values(here.rank, count).nbytes
        here.driver.all_gather(target, source, count, FLOAT32, here.comm, here.stream)
        here.require(target, expected, f"{count} of each rank in place")


@CASES.case("reduce_scatter")
@on_each_rank
def reduce_scatter(here: Rank) -> None:
    """reduce_scatter() gives each rank its part of the input, reduced with each operation, in place and not."""
    for count in COUNTS:
        for name, op, reduce in reductions(here.driver):
            data = values(here.rank, here.world * count)
            whole = reduce(rows(here.world, data.size)).astype(np.float32).reshape(here.world, count)
            source = here.place(data)
            own = source + here.rank * data.nbytes // here.world
            for target, how in ((here.place(np.zeros(count, np.float32)), ""), (own, " in place")):
                arguments = (count, FLOAT32, op, None, here.comm, here.stream)
                here.driver.reduce_scatter(target, source, *arguments)
                here.require(target, whole[here.rank], f"{name} of {count} for each rank{how}")


@CASES.case("all_to_all")
@on_each_rank
def all_to_all(here: Rank) -> None:
    """all_to_all() sends part r of the input to rank r."""
    count = 1003
    source = here.place(values(here.rank, here.world * count))
    target = here.place(np.zeros(here.world * count, np.float32))
    here.driver.all_to_all(target, source, count, FLOAT32, here.comm, here.stream)
    parts = rows(here.world, here.world * count).reshape(here.world, here.world, count)
    here.require(target, parts[:, here.rank].reshape(-1), f"{count} to each rank")


@CASES.case("send", devices=2)
@on_each_rank
def exchange(here: Rank) -> None:
    """Sends and receives between group_start() and group_end() do not wait for each other."""
    driver, other = here.driver, 1 - here.rank
    for count in COUNTS:
        source, target = here.place(values(here.rank, count)), here.place(np.zeros(count, np.float32))
        driver.group_start()
        driver.send(source, count, FLOAT32, other, here.comm, here.stream)
        driver.receive(target, count, FLOAT32, other, here.comm, here.stream)
        driver.group_end()
        here.require(target, values(other, count), f"{count} from the other rank")


@CASES.case("all_reduce", HOST_FUNCTIONS)
@on_each_rank
def only_enqueued(here: Rank) -> None:
    """A collective only enqueues, and runs after earlier work of its stream."""
    count = 1003
    data = values(here.rank, count)
    source = here.place(data)
    with gate(here.driver, here.stream, "all_reduce()"):
        here.driver.all_reduce(source, source, count, FLOAT32, SUM, None, here.comm, here.stream)
        before = np.empty(count, np.float32)
        here.driver.read_into(before, source)
        require(bool((before == data).all()), "it ran before earlier work of the stream was done")
    here.require(source, rows(here.world, count).sum(0), "after earlier work was done")
    found = here.driver.status("comm_error", here.comm)
    require(found == Status.OK, f"comm_error() returned {found.name}")


@CASES.case("comm_abort", devices=2)
def abort(device: Device) -> None:
    """comm_abort() ends work that waits for another rank, with ISTHMUS_ABORTED."""

    def body(here: Rank) -> None:
        if here.rank:  # never joins
            created.set()
            aborted.wait(TIMEOUT_MS / 1e3)
            return
        created.wait(TIMEOUT_MS / 1e3)  # an abort would end the other rank's comm_create()
        source = here.place(values(0, 64))
        here.driver.all_reduce(source, source, 64, FLOAT32, SUM, None, here.comm, here.stream)
        here.driver.comm_abort(here.comm)
        found = here.driver.status("stream_synchronize", here.stream)
        aborted.set()
        require(found == Status.ABORTED, f"stream_synchronize() returned {found.name}")

    created, aborted = threading.Event(), threading.Event()
    on_ranks(device, body)
