"""Jobs for the tests of libhccl.so: two ranks of one process, each with an NPU, a stream and a thread."""

import ctypes
import json
import os
import struct
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
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
        self.rank, self.comm, self.stream = rank, comm, acl.made("aclrtCreateStream")

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


def rank_table(folder: str, count: int = 2, **changes: Any) -> bytes:
    """Write a rank table of one server; return its path.

    Args:
        folder: where.
        count: number of devices.
        changes: members that differ; None leaves one out.
    """
    devices = [{"device_id": str(i), "device_ip": f"10.0.0.{i}", "rank_id": str(i)} for i in range(count)]
    table = {
        "version": "1.0",
        "server_count": "1",
        "server_list": [{"server_id": "10.0.1.1", "device": devices, "host_nic_ip": "reserve"}],
        "status": "completed",
        **changes,
    }
    path = Path(folder, "ranks.json")
    path.write_text(json.dumps({name: value for name, value in table.items() if value is not None}, indent=4))
    return str(path).encode()


def rank_tables() -> None:
    """Ranks find each other by a rank table, again after their communicator is destroyed."""
    with tempfile.TemporaryDirectory() as folder:
        path = rank_table(folder)

        def work(rank: int) -> None:
            acl.aclrtSetDevice(rank)
            for function, config in (("", ()), ("Config", (None,)), ("", ())):
                create = f"HcclCommInitClusterInfo{function}"
                r = Rank(rank, hccl.told(create, path, rank, *config, kind=ctypes.c_void_p))
                buffer = upload(floats(rank, 3))
                hccl.HcclAllReduce(buffer, buffer, 2, FLOAT32, SUM, r.comm, r.stream)
                assert r.result(buffer, 2) == (1, 6)
                hccl.HcclCommDestroy(r.comm)

        on_threads(work)


def wrong_rank_tables() -> None:
    """The message names the file and what is wrong with it."""
    acl.aclrtSetDevice(0)

    def refuses(path: bytes, text: str, rank: int = 0) -> None:
        with fails(INVALID, "HcclCommInitClusterInfo: ", path.decode(), text):
            hccl.told("HcclCommInitClusterInfo", path, rank, kind=ctypes.c_void_p)

    def server(name: str, *devices: tuple[str, str]) -> dict[str, Any]:
        made = [{"device_id": device, "device_ip": "10.0.0.1", "rank_id": rank} for device, rank in devices]
        return {"server_id": name, "device": made}

    with tempfile.TemporaryDirectory() as folder:
        refuses(folder.encode() + b"/absent.json", "No such file or directory")
        refuses(rank_table(folder), "rank 2 is not in rank table", rank=2)
        for text, changes in (
            ('status is "initializing", expected "completed"', {"status": "initializing"}),
            ('version is "2.0", expected "1.0"', {"version": "2.0"}),
            ("version is missing", {"version": None}),
            ("server_list is missing", {"server_list": None}),
            ("server_list is not an array", {"server_list": "none"}),
            ("server_count is not a string", {"server_count": 1}),
            ('server_count is "one", expected a number in quotes', {"server_count": "one"}),
            ("server_count is 2, but server_list has 1 servers", {"server_count": "2"}),
            ("it has no devices", {"server_list": [server("a")]}),
            ("rank_id 0 occurs twice", {"server_list": [server("a", ("0", "0"), ("1", "0"))]}),
            ("device_id 0 of server a occurs twice", {"server_list": [server("a", ("0", "0"), ("0", "1"))]}),
            ("its 2 ranks are not 0 to 1", {"server_list": [server("a", ("0", "0"), ("1", "2"))]}),
            (
                "server_id a occurs twice",
                {"server_count": "2", "server_list": [server("a", ("0", "0")), server("a", ("1", "1"))]},
            ),
        ):
            refuses(rank_table(folder, **changes), text)
        path = Path(folder, "broken.json")
        for text, document in (
            ("line 3: expected ':'", '{"status": "a\\n\\u00e9",\n "b": [1, -2.5e3, true, null],\n "c" 1}'),
            ("line 1: expected a value", ""),
            ("line 1: expected ',' or ']'", "[1 2"),
            ("line 1: expected '\"'", '{"a": "b'),
            ("line 1: expected at most 64 levels", "[" * 100),
            ("line 2: expected the end", "{}\n{}"),
            ("it is not a JSON object", "[]"),
        ):
            path.write_text(document)
            refuses(str(path).encode(), text)


def absent_ranks() -> None:
    """All waiting ranks get the same message. It names the missing ranks."""
    os.environ["HCCL_CONNECT_TIMEOUT"] = "0.3"
    with tempfile.TemporaryDirectory() as folder:
        path = rank_table(folder, 3)

        def work(rank: int) -> None:
            acl.aclrtSetDevice(rank)
            with fails(TIMEOUT, "timed out after 300 ms waiting for ranks [2] of 3; check these ranks"):
                hccl.told("HcclCommInitClusterInfo", path, rank, kind=ctypes.c_void_p)

        on_threads(work)
        acl.aclrtSetDevice(0)
        with fails(TIMEOUT, "waiting for rank 0; check"):
            hccl.told("HcclCommInitClusterInfo", path, 1, kind=ctypes.c_void_p)
        os.environ["HCCL_CONNECT_TIMEOUT"] = "soon"
        with fails(INVALID, "HCCL_CONNECT_TIMEOUT=soon is not a number of seconds"):
            hccl.told("HcclCommInitClusterInfo", path, 1, kind=ctypes.c_void_p)


def sub_communicators() -> None:
    """Ranks of a communicator in another order, or some of them; wrong lists are refused."""

    def work(r: Rank) -> None:
        def create(ranks: list[int], rank: int, number: int = 7) -> int:
            listed = (ctypes.c_uint32 * len(ranks))(*ranks)
            parent, made = ctypes.c_void_p(r.comm), ctypes.c_void_p()
            hccl.HcclCreateSubCommConfig(
                ctypes.byref(parent), len(ranks), listed, number, rank, None, ctypes.byref(made)
            )
            assert made.value is not None
            return made.value

        swapped, alone = create([1, 0], 1 - r.rank), create([r.rank], 0)
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
                create(ranks, rank)
        for comm in (swapped, alone):
            hccl.HcclCommDestroy(comm)

    on_ranks(work)
