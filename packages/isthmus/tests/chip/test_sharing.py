"""Chip tensors through torch.multiprocessing: shared memory in both processes while it is used."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing as mp

from isthmus import _C
from isthmus.chip import sharing
from isthmus_common import patches
from tests.helpers import children

TIMEOUT = 20
MIB = 1 << 20


def through_pickle(tensor: torch.Tensor) -> torch.Tensor:
    return pickle.loads(ForkingPickler.dumps(tensor))


def receiver(inbox, outbox) -> None:
    """Child process: execute commands on received tensors."""
    held: list[torch.Tensor] = []
    while (message := inbox.get(timeout=TIMEOUT)) is not None:
        order, value = message
        if order == "hold":
            held += value if isinstance(value, list) else [value]
            outbox.put(len(held))
        elif order == "write":
            held[value].fill_(7)
            torch.chip.synchronize(held[value].device)
            outbox.put(None)
        elif order == "read":
            outbox.put(held[value].tolist())
        elif order == "describe":
            each = held[value]
            outbox.put((type(each), each.requires_grad, each.stride(), each.storage_offset()))
        elif order == "same storage":
            outbox.put(held[0].untyped_storage()._cdata == held[1].untyped_storage()._cdata)
        elif order == "grow":
            try:
                held[value].resize_(1 << 20)
            except RuntimeError as error:
                outbox.put(str(error))
        elif order == "send back":
            outbox.put(held[value])
        elif order == "drop":
            held.clear()
            message = value = each = None
            outbox.put(None)


class Other:
    """A second process, and requests to it."""

    def __init__(self) -> None:
        context = mp.get_context("spawn")
        self.inbox, self.outbox = context.Queue(), context.Queue()
        self.process = context.Process(target=receiver, args=(self.inbox, self.outbox))
        self.process.start()

    def __call__(self, order: str, value: object = None) -> object:
        self.inbox.put((order, value))
        return self.outbox.get(timeout=TIMEOUT)


@pytest.fixture(scope="module")
def other_process() -> Iterator[Other]:
    other = Other()
    yield other
    other.inbox.put(None)
    other.process.join(TIMEOUT)
    assert other.process.exitcode == 0


@pytest.fixture
def other(other_process: Other) -> Iterator[Other]:
    """Worker that holds no memory before and after the test."""
    yield other_process
    other_process("drop")
    torch.chip.ipc_collect()
    assert _C.count_sent() == 0


@contextmanager
def allocated(expected: int) -> Iterator[None]:
    """Bytes that chip:1 holds more afterwards."""
    torch.chip.ipc_collect()
    before = torch.chip.memory_allocated(1)
    yield
    assert torch.chip.memory_allocated(1) - before == expected


def test_both_processes_see_each_others_writes(other: Other) -> None:
    tensor = torch.arange(5.0, device="chip:1")
    other("hold", tensor)
    assert other("read", 0) == [0, 1, 2, 3, 4]
    other("write", 0)
    assert tensor.tolist() == [7] * 5
    tensor.fill_(3)
    torch.chip.synchronize(1)
    assert other("read", 0) == [3] * 5


def test_outstanding_work_is_done_when_the_tensor_arrives(other: Other) -> None:
    stream = torch.chip.Stream(1)
    host = torch.arange(MIB, dtype=torch.int32).pin_memory()
    with torch.chip.stream(stream):
        tensor = host.to("chip:1", non_blocking=True)
    other("hold", tensor[-3:])
    assert other("read", 0) == [MIB - 3, MIB - 2, MIB - 1]


def test_views_share_one_storage(other: Other) -> None:
    base = torch.arange(12.0, device="chip:1").view(3, 4)
    other("hold", [base, base.t()[1:]])
    assert other("read", 1) == base.t()[1:].tolist()
    assert other("describe", 1) == (torch.Tensor, False, (1, 4), 1)
    assert other("same storage")
    other("hold", base[2])  # in a message of its own
    base.zero_()
    torch.chip.synchronize(1)
    assert other("read", 2) == [0] * 4


def test_parameter_and_requires_grad(other: Other) -> None:
    parameter = torch.nn.Parameter(torch.ones(2, device="chip:1"), requires_grad=False)
    leaf = torch.ones(2, device="chip:1", requires_grad=True)
    other("hold", [parameter, leaf])
    assert other("describe", 0) == (torch.nn.Parameter, False, (1,), 0)
    assert other("describe", 1) == (torch.Tensor, True, (1,), 0)


def test_sender_keeps_the_memory_until_the_receiver_drops_it(other: Other) -> None:
    with allocated(0):
        tensor = torch.ones(MIB, dtype=torch.uint8, device="chip:1")
        other("hold", tensor)
        with allocated(0):
            del tensor
        fresh = torch.zeros(MIB, dtype=torch.uint8, device="chip:1")
        assert set(other("read", 0)) == {1}
        del fresh
        other("drop")
        torch.chip.ipc_collect()


def test_memory_is_kept_while_any_receiver_has_it(other: Other) -> None:
    second = Other()
    with allocated(0):
        tensor = torch.ones(MIB, dtype=torch.uint8, device="chip:1")
        other("hold", tensor)
        second("hold", tensor)
        del tensor
        with allocated(0):
            other("drop")
        with allocated(-MIB):
            second("drop")
            torch.chip.ipc_collect()
    second.inbox.put(None)
    second.process.join(TIMEOUT)


def test_memory_of_a_killed_receiver_is_freed() -> None:
    other = Other()
    with allocated(0):
        other("hold", torch.ones(MIB, dtype=torch.uint8, device="chip:1"))
        assert _C.count_sent() == 1
        os.kill(other.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, other.process.pid, os.WEXITED | os.WNOWAIT)  # a zombie is dead too
        torch.chip.ipc_collect()
    assert _C.count_sent() == 0
    other.process.join(TIMEOUT)


def test_out_of_memory_frees_dropped_storages(other: Other) -> None:
    half = int(torch.chip.mem_get_info(1)[0] * 0.6)
    other("hold", torch.empty(half, dtype=torch.uint8, device="chip:1"))
    other("drop")
    assert torch.empty(half, dtype=torch.uint8, device="chip:1").nbytes == half


def test_neither_side_may_grow_what_is_shared(other: Other) -> None:
    tensor = torch.ones(4, device="chip:1")
    other("hold", tensor)
    assert "not resizable" in other("grow", 0)
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.resize_(1 << 20)


def test_received_tensors_are_forwarded_by_copy(other: Other) -> None:
    tensor = torch.arange(3.0, device="chip:1")
    other("hold", tensor)
    back = other("send back", 0)
    assert back.device == tensor.device and back.tolist() == [0, 1, 2]
    tensor.fill_(5)
    assert back.tolist() == [0, 1, 2]


def test_more_tensors_than_a_table_has_leases(other: Other) -> None:
    tensors = [torch.full((1,), float(i), device="chip:1") for i in range(sharing._LEASES + 3)]
    assert other("hold", tensors) == len(tensors)
    assert _C.count_sent() == len(tensors)
    assert other("read", len(tensors) - 1) == [len(tensors) - 1]


def test_within_a_process_it_is_the_same_tensor() -> None:
    tensor = torch.ones(3, device="chip:1")
    other = through_pickle(tensor[1:])
    other.fill_(2)
    assert tensor.tolist() == [1, 2, 2]
    assert other.untyped_storage()._cdata == tensor.untyped_storage()._cdata
    assert _C.count_sent() == 0


def test_a_message_is_received_once() -> None:
    rebuild, message = ForkingPickler._extra_reducers[torch.Tensor](torch.ones(3, device="chip"))
    assert rebuild(*message).tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="already received; a chip tensor can be received once per send"):
        rebuild(*message)


def test_empty_and_conjugate_tensors_go_by_copy() -> None:
    conjugate = torch.full((2,), 1 + 2j, device="chip").conj()
    assert through_pickle(conjugate).tolist() == [1 - 2j] * 2
    assert through_pickle(torch.empty(0, 3, device="chip")).shape == (0, 3)
    assert _C.count_sent() == 0


def test_result_of_an_operation_is_refused_as_elsewhere() -> None:
    tensor = torch.ones(2, device="chip", requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="non-leaf tensor"):
        ForkingPickler.dumps(tensor)


def test_cpu_tensors_are_shared_as_before() -> None:
    tensor = torch.ones(3)
    through_pickle(tensor).fill_(5)
    assert tensor.tolist() == [5, 5, 5]


def test_memory_that_the_driver_cannot_export_goes_by_copy() -> None:
    printed = children.output(
        """
        import pickle, torch
        from multiprocessing.reduction import ForkingPickler
        import torch.multiprocessing
        tensor = torch.nn.Parameter(torch.ones(3, device="chip"))
        other = pickle.loads(ForkingPickler.dumps(tensor))
        with torch.no_grad():
            other.fill_(2)
        print(type(other).__name__, other.tolist(), tensor.tolist())
        """,
        ISTHMUS_ALLOCATOR="torch",
        ISTHMUS_ALLOC_CONF="expandable_segments:True",
    )
    assert printed == "Parameter [2.0, 2.0, 2.0] [1.0, 1.0, 1.0]"


def test_patches_of_sharing_are_undone() -> None:
    before = len(patches.active("chip"))
    sharing.uninstall()
    try:
        assert before - len(patches.active("chip")) == 2
        with pytest.raises(RuntimeError):
            ForkingPickler.dumps(torch.ones(1, device="chip"))
    finally:
        sharing.install()
