"""Jobs for the tests of libhccl.so: two ranks of one process, each with an NPU, a stream and a thread."""

import ctypes
import os
import struct
import threading
from collections.abc import Callable
from typing import Any

from tests.runtime.runtime import acl, download, fails, hccl, upload

FLOAT32, INT64, INT128 = 4, 5, 12
SUM, PRODUCT, MAX, MIN = range(4)
INVALID, UNSUPPORTED, TIMEOUT = 1, 5, 9


def floats(*values: float) -> bytes:
    """Return the values as float32."""
    return struct.pack(f"<{len(values)}f", *values)


def counts(*values: int) -> Any:
    """Return an array of uint64."""
    return (ctypes.c_uint64 * len(values))(*values)


class Rank:
    """One rank, in its own thread."""

    def __init__(self, rank: int, comm: int) -> None:
        acl.aclrtSetDevice(rank)
        self.rank, self.comm, self.stream = rank, comm, acl.result_of("aclrtCreateStream")

    def result(self, address: int, count: int) -> tuple[float, ...]:
        """Return so many float32 of device memory after the stream's work."""
        acl.aclrtSynchronizeStream(self.stream)
        return struct.unpack(f"<{count}f", download(address, 4 * count))


def on_threads(work: Callable[[int], None]) -> None:
    """Run the work in two threads, each with its number."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def on_ranks(work: Callable[[Rank], None]) -> None:
    """Run the work on two ranks."""
    comms = (ctypes.c_void_p * 2)()
    hccl.HcclCommInitAll(2, (ctypes.c_int32 * 2)(0, 1), comms)
    on_threads(lambda rank: work(Rank(rank, comms[rank])))
    for comm in comms:
        hccl.HcclCommDestroy(comm)


def reductions() -> None:
    """All-reduce, reduce, reduce-scatter, the latter with unequal parts too."""

    def work(r: Rank) -> None:
        start, to = upload(floats(r.rank + 1, 3 - r.rank, 5)), upload(floats(0, 0, 0))
        for operation, expected in (
            (SUM, (3, 5, 10)),
            (PRODUCT, (2, 6, 25)),
            (MAX, (2, 3, 5)),
            (MIN, (1, 2, 5)),
        ):
            hccl.HcclAllReduce(start, to, 3, FLOAT32, operation, r.comm, r.stream)
            assert r.result(to, 3) == expected
        hccl.HcclReduce(start, to, 3, FLOAT32, SUM, 1, r.comm, r.stream)
        if r.rank == 1:
            assert r.result(to, 3) == (3, 5, 10)
        pairs = upload(floats(1, 2, 3, 4))
        hccl.HcclReduceScatter(pairs, to, 2, FLOAT32, SUM, r.comm, r.stream)
        assert r.result(to, 2) == ((2, 4), (6, 8))[r.rank]
        hccl.HcclReduceScatterV(
            pairs, counts(1, 3), counts(0, 1), to, 1 + 2 * r.rank, FLOAT32, SUM, r.comm, r.stream
        )
        assert r.result(to, 1 + 2 * r.rank) == ((2,), (4, 6, 8))[r.rank]

    on_ranks(work)


def movements() -> None:
    """Broadcast, gather, scatter, all-to-all, send and receive."""

    def work(r: Rank) -> None:
        own, to = upload(floats(10 * r.rank, 10 * r.rank + 1)), upload(floats(*[0] * 4))
        buffer = upload(floats(r.rank, r.rank))
        hccl.HcclBroadcast(buffer, 2, FLOAT32, 1, r.comm, r.stream)
        assert r.result(buffer, 2) == (1, 1)
        hccl.HcclAllGather(own, to, 2, FLOAT32, r.comm, r.stream)
        assert r.result(to, 4) == (0, 1, 10, 11)
        hccl.HcclAllGatherV(own, 1 + r.rank, to, counts(1, 2), counts(0, 1), FLOAT32, r.comm, r.stream)
        assert r.result(to, 3) == (0, 10, 11)
        hccl.HcclScatter(own, to, 1, FLOAT32, 0, r.comm, r.stream)
        assert r.result(to, 1) == (r.rank,)
        hccl.HcclAlltoAll(own, 1, FLOAT32, to, 1, FLOAT32, r.comm, r.stream)
        assert r.result(to, 2) == ((0, 10), (1, 11))[r.rank]
        one = (counts(1, 1), counts(0, 1), FLOAT32)
        hccl.HcclAlltoAllV(own, *one, to, *one, r.comm, r.stream)
        assert r.result(to, 2) == ((0, 10), (1, 11))[r.rank]
        hccl.HcclAlltoAllVC(own, counts(1, 1, 1, 1), FLOAT32, to, FLOAT32, r.comm, r.stream)
        assert r.result(to, 2) == ((0, 10), (1, 11))[r.rank]
        if r.rank == 0:
            hccl.HcclSend(own, 2, FLOAT32, 1, r.comm, r.stream)
        else:
            hccl.HcclRecv(to, 2, FLOAT32, 0, r.comm, r.stream)
            assert r.result(to, 2) == (0, 1)
        items = b"".join(
            struct.pack("<i4xQQiI", kind, address, 2, FLOAT32, 1 - r.rank)
            for kind, address in ((0, own), (1, to))
        )
        hccl.HcclBatchSendRecv(items, 2, r.comm, r.stream)
        assert r.result(to, 2) == ((10, 11), (0, 1))[r.rank]

    on_ranks(work)


def communicators() -> None:
    """Names, ranks and errors of communicators."""
    names = [""] * 2

    def work(r: Rank) -> None:
        assert hccl.told("HcclGetRankId", r.comm) == r.rank
        assert hccl.told("HcclGetRankSize", r.comm) == 2
        assert hccl.told("HcclGetCommAsyncError", r.comm) == 0
        name = ctypes.create_string_buffer(128)
        hccl.HcclGetCommName(r.comm, name)
        names[r.rank] = name.value.decode()
        with fails(UNSUPPORTED, "HcclDataType 12"):
            hccl.HcclAllReduce(0, 0, 3, INT128, SUM, r.comm, r.stream)
        with fails(INVALID, "HcclReduceOp 7"):
            hccl.HcclAllReduce(0, 0, 3, FLOAT32, 7, r.comm, r.stream)
        with fails(INVALID, "stream"):
            hccl.HcclBroadcast(0, 3, FLOAT32, 0, r.comm, 16)
        with fails(INVALID, "communicator"):
            hccl.HcclBroadcast(0, 3, FLOAT32, 0, 16, r.stream)

    on_ranks(work)
    assert names[0] == names[1] != ""


def sub_communicator(r: Rank, ranks: list[int], rank: int, number: int = 7) -> int:
    """Return a communicator of these ranks, among which the caller has this rank."""
    listed = (ctypes.c_uint32 * len(ranks))(*ranks)
    parent, made = ctypes.c_void_p(r.comm), ctypes.c_void_p()
    hccl.HcclCreateSubCommConfig(
        ctypes.byref(parent), len(ranks), listed, number, rank, None, ctypes.byref(made)
    )
    assert made.value is not None
    return made.value


def absent_ranks() -> None:
    """The message names the missing ranks."""

    def work(r: Rank) -> None:
        missing = "rank 0" if r.rank else "ranks [1] of 2"
        with fails(TIMEOUT, f"timed out after 300 ms waiting for {missing}; check these ranks"):
            sub_communicator(r, [0, 1], r.rank, number=r.rank)

    def wrong_limit(r: Rank) -> None:
        with fails(INVALID, "HCCL_CONNECT_TIMEOUT=soon is not a number of seconds"):
            sub_communicator(r, [0, 1], r.rank)

    os.environ["HCCL_CONNECT_TIMEOUT"] = "0.3"
    on_ranks(work)
    os.environ["HCCL_CONNECT_TIMEOUT"] = "soon"
    on_ranks(wrong_limit)


def sub_communicators() -> None:
    """Ranks of a communicator in another order, or some of them; wrong lists are refused."""

    def work(r: Rank) -> None:
        swapped, alone = sub_communicator(r, [1, 0], 1 - r.rank), sub_communicator(r, [r.rank], 0)
        own, to = upload(floats(r.rank)), upload(floats(0, 0))
        hccl.HcclAllGather(own, to, 1, FLOAT32, swapped, r.stream)
        assert r.result(to, 2) == (1, 0)
        assert hccl.told("HcclGetRankId", swapped) == 1 - r.rank
        hccl.HcclAllGather(own, to, 1, FLOAT32, alone, r.stream)
        assert r.result(to, 1) == (r.rank,)
        assert hccl.told("HcclGetRankSize", alone) == 1
        for text, ranks, rank in (
            ("rank 2 is not in the communicator of 2 ranks", [0, 2], 0),
            ("a rank occurs twice", [r.rank, r.rank], 0),
            ("rank 1 of the new communicator is not in 0 to 0", [r.rank], 1),
            (f"rank 0 of the list is {1 - r.rank}, but the caller is rank {r.rank}", [1 - r.rank], 0),
        ):
            with fails(INVALID, text):
                sub_communicator(r, ranks, rank)
        for comm in (swapped, alone):
            hccl.HcclCommDestroy(comm)

    on_ranks(work)
