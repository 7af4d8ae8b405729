"""Cases of communicators, of dtypes, and of collectives that a driver may lack: gather, scatter, uneven exchange."""

import ctypes
import threading
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import Cases, require, require_bytes
from isthmus.conformance.driver.collectives import (
    FLOAT32,
    SUM,
    TIMEOUT_MS,
    Rank,
    on_each_rank,
    on_ranks,
    rows,
    values,
)
from isthmus.drivers import interface
from isthmus.drivers.interface import Status
from isthmus.opset import dtypes as dt

CASES = Cases()
COUNT = 1003
GAP = -9.0  # value that an exchange must leave between its parts
MAX = 3  # ISTHMUS_MAX
DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def split(here: Rank, color: int, key: int, rank: int, world: int) -> int:
    """Split the communicator; return the handle of the rank's part, or 0."""
    kind = interface.structure("comm_options")
    options = kind(ctypes.sizeof(kind), rank, world, TIMEOUT_MS, b"part")
    return here.driver.result_of("comm_split", here.comm, color, key, ctypes.byref(options))


def check_gathered(here: Rank, comm: int, ranks: list[int], what: str) -> None:
    """Check that an all_gather() of a communicator has the inputs of these ranks, in their order."""
    source = here.place(values(here.rank, COUNT))
    target = here.place(np.zeros(len(ranks) * COUNT, np.float32))
    here.driver.all_gather(target, source, COUNT, FLOAT32, comm, here.stream)
    here.require(target, np.concatenate([values(rank, COUNT) for rank in ranks]), what)


def typed_input(name: str, op: int, rank: int) -> np.ndarray[Any, Any]:
    """Return an input of a dtype that another dtype of its size reads otherwise; sums are exact."""
    kind = dt.DTYPES[name].numpy
    if dt.DTYPES[name].kind == "float":
        return np.array([1.5 + rank, -(2.0**rank), 1 + rank * float(ml_dtypes.finfo(kind).eps)]).astype(kind)
    limits = np.iinfo(kind)
    share = 2 if op == SUM else 1
    ends = [limits.max // share - 1, limits.min // share + 1]
    return np.array([ends[rank % 2], ends[(rank + 1) % 2], 5 + rank], kind)


@CASES.case("all_reduce")
@on_each_rank
def dtypes(here: Rank) -> None:
    """all_reduce() sums and finds the largest in each dtype that the driver supports."""
    for name in DTYPES:
        for op in (SUM, MAX):
            inputs = [typed_input(name, op, rank) for rank in range(here.world)]
            buffer = here.place(inputs[here.rank])
            arguments = (inputs[0].size, dt.DTYPES[name].code, op, None, here.comm, here.stream)
            found = here.driver.status("all_reduce", buffer, buffer, *arguments)
            require(found in (Status.OK, Status.UNSUPPORTED), f"for {name} it returned {found.name}")
            if found == Status.OK:
                here.driver.stream_synchronize(here.stream)
                expected = reduce(np.add if op == SUM else np.maximum, inputs)
                got = here.driver.read(buffer, expected.nbytes)
                require_bytes(got, expected.view(np.uint8), f"{'sum' if op == SUM else 'max'} of {name}")


@CASES.case("comm_split")
@on_each_rank
def split_by_key(here: Rank) -> None:
    """The ranks of a part are in the order of their keys, and the whole communicator still works."""
    everyone = list(range(here.world))
    last = here.world - 1
    comm = split(here, 3, last - here.rank, last - here.rank, here.world)
    check_gathered(here, comm, everyone[::-1], "in a part of reversed ranks")
    check_gathered(here, here.comm, everyone, "in the whole")
    here.driver.comm_destroy(comm)


@CASES.case("comm_split")
@on_each_rank
def split_by_color(here: Rank) -> None:
    """Ranks of different colors are in different parts; a rank with color < 0 is in none and gets null."""
    comm = split(here, here.rank, 0, 0, 1)
    check_gathered(here, comm, [here.rank], "alone")
    here.driver.comm_destroy(comm)
    none = split(here, -1 if here.rank == 0 else 0, 0, max(here.rank - 1, 0), max(here.world - 1, 1))
    require((none == 0) == (here.rank == 0), f"rank {here.rank} of two parts got {none:#x}")
    if none:
        here.driver.comm_destroy(none)


@CASES.case("comm_reachable")
def reachable(device: Device) -> None:
    """Devices of one process can be ranks of one communicator, and the call waits for no other rank."""
    found = device.driver.status("comm_reachable", device.driver.new_id())
    require(found == Status.OK, f"it returned {found.name}: {device.driver.last_error()}")


@CASES.case("gather")
@on_each_rank
def gather(here: Rank) -> None:
    """gather() concatenates the inputs on each root, and writes nowhere else."""
    for root in range(here.world):
        untouched = np.full(here.world * COUNT, GAP, np.float32)
        source, target = here.place(values(here.rank, COUNT)), here.place(untouched)
        here.driver.gather(target, source, COUNT, FLOAT32, root, here.comm, here.stream)
        expected = rows(here.world, COUNT).reshape(-1) if here.rank == root else untouched
        here.require(target, expected, f"to root {root}")


@CASES.case("scatter")
@on_each_rank
def scatter(here: Rank) -> None:
    """scatter() gives each rank its part of the input of each root."""
    for root in range(here.world):
        source = here.place(values(here.rank, here.world * COUNT))
        target = here.place(np.zeros(COUNT, np.float32))
        here.driver.scatter(target, source, COUNT, FLOAT32, root, here.comm, here.stream)
        parts = values(root, here.world * COUNT).reshape(here.world, COUNT)
        here.require(target, parts[here.rank], f"from root {root}")


@CASES.case("all_to_all_v")
@on_each_rank
def uneven_exchange(here: Rank) -> None:
    """all_to_all_v() exchanges parts of different sizes at any offsets, and writes only those."""
    world, ranks = here.world, range(here.world)

    def count(start: int, end: int) -> int:  # elements from one rank to another; one pair exchanges none
        return 0 if (start, end) == (0, world - 1) else 100 + 10 * start + end

    def array(numbers: list[int]) -> ctypes.Array[ctypes.c_size_t]:
        return (ctypes.c_size_t * world)(*numbers)

    # Parts in the opposite order of the ranks, with gaps.
    places = [(world - 1 - rank) * 200 + 7 for rank in ranks]
    data = values(here.rank, world * 200 + 7)
    source, target = here.place(data), here.place(np.full(data.size, GAP, np.float32))
    here.driver.all_to_all_v(
        target,
        array([count(other, here.rank) for other in ranks]),
        array(places),
        source,
        array([count(here.rank, other) for other in ranks]),
        array(places),
        FLOAT32,
        here.comm,
        here.stream,
    )
    expected = np.full(data.size, GAP, np.float32)
    for other in ranks:
        part = values(other, data.size)[places[here.rank] :][: count(other, here.rank)]
        expected[places[other] :][: part.size] = part
    here.require(target, expected, "parts of different sizes")


@CASES.case("comm_error", devices=2)
def timeout(device: Device) -> None:
    """Work that waits for another rank for longer than timeout_ms ends with ISTHMUS_TIMEOUT, as comm_error() says."""

    def body(here: Rank) -> None:
        if here.rank:  # never joins
            ended.wait(TIMEOUT_MS / 1e3)
            return
        source = here.place(values(0, 64))
        here.driver.all_reduce(source, source, 64, FLOAT32, SUM, None, here.comm, here.stream)
        found = here.driver.status("stream_synchronize", here.stream)
        error = here.driver.status("comm_error", here.comm)
        ended.set()
        require(found == Status.TIMEOUT, f"stream_synchronize() returned {found.name}")
        require(error == Status.TIMEOUT, f"comm_error() returned {error.name}")

    ended = threading.Event()
    on_ranks(device, body, timeout_ms=TIMEOUT_MS // 5)
