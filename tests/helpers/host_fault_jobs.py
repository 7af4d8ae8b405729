"""Rank jobs of test_host_driver_collectives.py about order, groups and failures."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import numpy as np

from isthmus.opset.dtypes import DTYPES
from tests.helpers.host_driver import DriverError
from tests.helpers.host_rank_jobs import SUM, Rank, descriptors, elements, is_same, job, new_id

FLOAT32, INT32, UINT32 = (DTYPES[name] for name in ("float32", "int32", "uint32"))
LARGE = 100_000  # elements: through the ranks' memory; SMALL goes through the control file
SMALL = 100


@job
def all_reduces(self: Rank, count: int, calls: int) -> bool:
    """Run in-place calls without host waits in between; all ranks must get the same bits."""
    self.driver.write(self.to, elements(UINT32, count, self.rank))
    for _ in range(calls):
        self.driver.all_reduce(self.to, self.to, count, UINT32.code, SUM, None, self.comm, self.stream)
    self.synchronize()
    return is_same(self.read(self.to, UINT32, count), _repeated_sum(self.world, count, calls))


def _repeated_sum(world: int, count: int, calls: int) -> Any:
    """The sum over the ranks, summed again and again, as it wraps around."""
    inputs = [elements(UINT32, count, rank).astype(np.uint64) for rank in range(world)]
    return (sum(inputs[1:], inputs[0]) * np.uint64(world ** (calls - 1) % 2**32)).astype(np.uint32)


@job
def two_streams(self: Rank) -> bool:
    """Collectives of one communicator on two streams keep the order of the calls."""
    streams = (self.stream, self.driver.result_of("stream_create", 0))
    self.driver.write(self.to, elements(UINT32, LARGE, self.rank))
    for index in range(20):
        stream = streams[index % 2]
        self.driver.all_reduce(self.to, self.to, LARGE, UINT32.code, SUM, None, self.comm, stream)
    for stream in streams:
        self.driver.stream_synchronize(stream)
    self.driver.stream_destroy(streams[1])
    return is_same(self.read(self.to, UINT32, LARGE), _repeated_sum(self.world, LARGE, 20))


@job
def around_the_ring(self: Rank, count: int, grouped: bool) -> bool:
    """Each rank sends to the next and receives from the one before."""
    self.driver.write(self.other, elements(FLOAT32, count, self.rank))
    after, before = (self.rank + 1) % self.world, (self.rank - 1) % self.world
    tail = (self.comm, self.stream)
    if grouped:
        self.driver.group_start()
    self.driver.send(self.other, count, FLOAT32.code, after, *tail)
    self.driver.receive(self.to, count, FLOAT32.code, before, *tail)
    if grouped:
        self.driver.group_end()
    self.synchronize()
    return is_same(self.read(self.to, FLOAT32, count), elements(FLOAT32, count, before))


@job
def mixed_group(self: Rank, count: int) -> bool:
    """Messages and collectives on one stream, in a different order on every rank."""
    size = count * FLOAT32.numpy.itemsize
    self.driver.write(self.other, elements(FLOAT32, count, self.rank))
    peers = [(self.rank + i) % self.world for i in range(self.world)]
    tail = (self.comm, self.stream)
    calls: list[tuple[Any, ...]] = [("send", self.other, count, FLOAT32.code, peer) for peer in peers]
    calls += [("receive", self.to + peer * size, count, FLOAT32.code, peer) for peer in peers]
    reduction = ("all_reduce", self.to + self.world * size, self.other, count, FLOAT32.code, SUM, None)
    calls.insert(self.rank * 2, reduction)
    self.driver.group_start()
    self.driver.group_start()
    for function, *arguments in calls:
        getattr(self.driver, function)(*arguments, *tail)
    self.driver.group_end()
    self.driver.group_end()
    self.synchronize()
    wanted = [elements(FLOAT32, count, rank) for rank in range(self.world)]
    found = self.read(self.to, FLOAT32, count * (self.world + 1))
    return is_same(found, np.concatenate([*wanted, sum(wanted[1:], wanted[0])]))


@job
def many_messages(self: Rank, count: int, messages: int) -> bool:
    """More messages than a channel holds; the receiver starts late."""
    tail = (self.comm, self.stream)
    if self.rank == 0:
        for index in range(messages):
            self.driver.write(self.other, elements(FLOAT32, count, index))
            self.driver.send(self.other, count, FLOAT32.code, 1, *tail)
            self.synchronize()
        return True
    right = True
    time.sleep(0.05)
    for index in range(messages):
        self.run("receive", self.to, count, FLOAT32.code, 0)
        right = right and is_same(self.read(self.to, FLOAT32, count), elements(FLOAT32, count, index))
    return right


@job
def split(self: Rank) -> list[Any]:
    """Even ranks in reverse order, odd ranks in order, the last rank in neither."""
    last = self.rank == self.world - 1
    color, key = (-1 if last else self.rank % 2), (-self.rank if self.rank % 2 == 0 else 0)
    comm = ctypes.c_void_p()
    self.driver.comm_split(self.comm, color, key, None, ctypes.byref(comm))
    self.driver.write(self.other, np.full(2, [self.rank, 1], np.int32))
    one = self.other + INT32.numpy.itemsize
    if last:
        self.run("all_reduce", self.to, one, 1, INT32.code, SUM, None)
        return [comm.value is None]
    members = [rank for rank in range(self.world - 1) if rank % 2 == color]
    members = members[::-1] if color == 0 else members
    self.driver.all_gather(self.to, self.other, 1, INT32.code, comm, self.stream)
    self.synchronize()
    found = self.read(self.to, INT32, len(members)).tolist()
    self.driver.comm_destroy(comm)
    self.run("all_reduce", self.to, one, 1, INT32.code, SUM, None)  # the parent group continues
    return [found == members, int(self.read(self.to, INT32, 1)[0]) == self.world]


@job
def skips_one(self: Rank) -> None:
    """Rank 1 skips a broadcast."""
    if self.rank != 1:
        self.run("broadcast", self.to, SMALL, FLOAT32.code, 0)
    self.run("all_reduce", self.to, self.to, SMALL, FLOAT32.code, SUM, None)


@job
def differs(self: Rank, count: int, dtype: str, op: int) -> None:
    """Rank 1 reduces something else."""
    if self.rank != 1:
        count, dtype, op = SMALL, "float32", SUM
    self.run("all_reduce", self.to, self.to, count, DTYPES[dtype].code, op, None)


@job
def parts_differ(self: Rank) -> None:
    """Rank 0 expects more data than rank 1 sends."""
    array = ctypes.c_size_t * self.world
    sent, offsets = [1] * self.world, list(range(0, 10 * self.world, 10))
    taken = [3 if (self.rank, peer) == (0, 1) else 1 for peer in range(self.world)]
    pointers = [ctypes.cast(array(*values), ctypes.c_void_p) for values in (taken, offsets, sent, offsets)]
    self.run("all_to_all_v", self.to, *pointers[:2], self.other, *pointers[2:], FLOAT32.code)


@job
def message_differs(self: Rank) -> None:
    """Rank 1 expects fewer elements than rank 0 sends."""
    if self.rank == 0:
        self.run("send", self.to, LARGE, FLOAT32.code, 1)
    else:
        self.run("receive", self.to, LARGE - 1, FLOAT32.code, 0)


@job
def one_stays_away(self: Rank, count: int) -> list[Any]:
    """The last rank stops making calls; return the outcome of three attempts."""
    for _ in range(3):
        self.run("all_reduce", self.to, self.other, count, FLOAT32.code, SUM, None)
    if self.rank == self.world - 1:
        time.sleep(1.5)
        return []
    begin = time.monotonic()
    found: list[Any] = []
    for again in range(2):
        try:
            self.run("all_reduce", self.to, self.other, count, FLOAT32.code, SUM, None)
        except DriverError as error:
            found += [int(error.status), str(error), again or time.monotonic() - begin]
    return [*found, int(self.driver.status("comm_error", self.comm))]


@job
def one_is_signalled(self: Rank, count: int, number: int) -> None:
    """Rank 1 gets a signal after some calls, with one in flight."""
    arguments = (self.to, self.other, count, FLOAT32.code, SUM, None, self.comm, self.stream)
    for index in range(50):
        self.driver.all_reduce(*arguments)
        if self.rank == 1 and index == 20:
            self.driver.all_reduce(*arguments)
            os.kill(os.getpid(), number)
        self.synchronize()


@job
def message_without_receiver(self: Rank) -> None:
    """Rank 0 sends a message that rank 1 never receives."""
    if self.rank == 0:
        self.run("send", self.to, LARGE, FLOAT32.code, 1)
    else:
        time.sleep(1.0)


@job
def aborts(self: Rank, rank: int) -> Any:
    """A rank aborts while the others, or its own stream, wait for rank 0."""
    self.run("all_reduce", self.to, self.other, SMALL, FLOAT32.code, SUM, None)
    if self.rank != 0:
        self.driver.all_reduce(self.to, self.other, LARGE, FLOAT32.code, SUM, None, self.comm, self.stream)
    if self.rank == rank:
        time.sleep(0.2)
        self.driver.comm_abort(self.comm)
    while self.rank == 0 and self.driver.status("comm_error", self.comm) == 0:
        time.sleep(0.01)
    self.synchronize()
    self.run("all_reduce", self.to, self.other, SMALL, FLOAT32.code, SUM, None)


@job
def leaves(self: Rank) -> None:
    """Rank 1 destroys its communicator while the others continue."""
    self.run("all_reduce", self.to, self.other, SMALL, FLOAT32.code, SUM, None)
    if self.rank != 1:
        self.run("all_reduce", self.to, self.other, SMALL, FLOAT32.code, SUM, None)


@job
def count_descriptors(self: Rank) -> int:
    """Count open files of this process while it is a rank."""
    return descriptors()


@job
def stale_id(self: Rank) -> str:
    """Create an id in a process that will exit."""
    return new_id(self.driver).hex() + f" {os.getpid()}"
