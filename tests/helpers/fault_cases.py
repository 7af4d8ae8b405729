"""One rank of a job that goes wrong: ``python -m tests.helpers.fault_cases RANK SIZE PORT CASE``.

Prints one line of JSON: what the rank was told, and what the next operation said. No case depends on how soon ranks
call their operations: one that is to report waits until the others have published theirs in the store.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=3)
# Patience with ranks that something else ends, however late on a busy machine.
PATIENCE = timedelta(seconds=60)
CASES: dict[str, Callable[[int, torch.Tensor, dist.ProcessGroup], None]] = {}
Case = Callable[[int, torch.Tensor, dist.ProcessGroup], None]


class Uncaught(BaseException):
    """Kill the process."""


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


@case
def killed(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    with rank_1_last(rank, group):
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(tensor, group=group)
    tensor.sum().item()


@case
def stopped(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    if rank == 1:
        group.set_timeout(TIMEOUT)  # reports ten times in it
        await_notices(group, [1], " broadcast\n")
        os.kill(os.getpid(), signal.SIGSTOP)
    with rank_0_reports(rank, group, " broadcast\n"):
        dist.all_reduce(tensor, group=group)
    tensor.sum().item()


@case
def late(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 runs but does not call the collective before the others have failed."""
    if rank == 1:
        group.set_timeout(TIMEOUT)  # reports ten times in it
        await_ends(0, 2)
    with rank_0_reports(rank, group, " broadcast\n"):
        dist.all_reduce(tensor, group=group, async_op=True).wait()
    torch.chip.synchronize()


@case
def healthy(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    run_every_collective(rank, tensor, group)
    folder = Path(os.environ["FLIGHT_RECORDS"])
    (folder / f"rank_{rank}").write_bytes(torch.chip.dump_flight_recorder())


@case
def raised(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 raises an exception; the others wait for it."""
    with rank_1_last(rank, group):
        if rank == 1:
            print("{}", flush=True)
            raise Uncaught
        dist.all_reduce(tensor, group=group)
    torch.chip.synchronize()


@case
def differs_among_others(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Operation 8 differs; 3 to 7 are probably not yet known to be complete, and 9 and 10 are queued after it."""
    with rank_1_last(rank, group, last=10):
        for operation in range(3, 11):
            if operation == 8 and rank == 1:
                dist.broadcast(tensor, 0, group=group)
            else:
                dist.all_reduce(tensor, group=group)
    torch.chip.synchronize()


@case
def skipped(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    with rank_1_last(rank, group):
        if rank != 1:
            dist.broadcast(tensor, 0, group=group)
        dist.all_reduce(tensor, group=group)
    torch.chip.synchronize()


@case
def other_shape(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    with rank_1_last(rank, group):
        dist.all_reduce(tensor if rank != 1 else tensor[:5], group=group)
    tensor.sum().item()


@case
def other_dtype(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    with rank_1_last(rank, group):
        dist.all_reduce(tensor if rank != 1 else tensor.to(torch.int8), group=group)
    tensor.sum().item()


@case
def on_cpu(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 passes tensors of two devices, which raises there and is caught."""
    try:
        if rank == 0:
            await_key(store_of(group), "chip/refused/1")
        with rank_0_reports(rank, group, ""):
            gather_into_tensor(rank, tensor, group)
        torch.chip.synchronize()
    finally:
        if rank == 1:
            await_ends(0, 2)


@case
def on_cpu_and_goes_on(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Like :func:`on_cpu`, where rank 1 calls the next operation at once."""
    with rank_1_last(rank, group):
        gather_into_tensor(rank, tensor, group)
    torch.chip.synchronize()


def gather_into_tensor(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    output = tensor.new_empty(tensor.numel() * dist.get_world_size(group))
    dist.all_gather_into_tensor(output, tensor.cpu() if rank == 1 else tensor, group=group)


@case
def wholly_on_cpu(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 passes a CPU tensor, which goes to gloo."""
    try:
        with rank_0_reports(rank, group, "\n3 all_reduce\n"):
            work = dist.all_reduce(tensor.cpu() if rank == 1 else tensor, group=group, async_op=True)
        work.wait()
        torch.chip.synchronize()
    finally:
        if rank == 1:
            await_ends(0, 2)


@case
def crossed_on_the_host(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Like :func:`crossed`, where the host waits for each operation."""
    cross(rank, tensor, group, torch.chip.synchronize, "\tall_reduce #3\n")


@case
def crossed(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Two groups in one order on rank 1 and in the other on the other ranks, on one stream."""
    cross(rank, tensor, group, lambda: None, "\tall_reduce #2\n")


def cross(
    rank: int, tensor: torch.Tensor, group: dist.ProcessGroup, between: Callable[[], object], last: str
) -> None:
    """Rank 1 calls its operations once the others have published their last ones; it alone times out."""
    second = dist.new_group()
    dist.all_reduce(tensor, group=second)
    torch.chip.synchronize()
    if rank == 1:
        await_notices(second, [0, 2], last)
    try:
        for each in (second, group) if rank == 1 else (group, second):
            with report_timeout(each, rank == 1 and each is second):
                dist.all_reduce(tensor, group=each)
            between()
        torch.chip.synchronize()
    finally:
        if rank == 1:
            dist.all_reduce(tensor, group=group)  # the others may wait for it
            await_ends(0, 2)


@case
def unanswered(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """A message that rank 1 does not receive."""
    if rank == 0:
        group.set_timeout(TIMEOUT)
        dist.recv(tensor, 1, group=group)
        tensor.sum().item()
    await_ends(0)


def exchange(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """A batch of a message each way between ranks 2 and 3."""
    peer, received = 5 - rank, torch.zeros_like(tensor)
    messages = [dist.P2POp(dist.irecv, received, peer, group), dist.P2POp(dist.isend, tensor, peer, group)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    received.sum().item()


@case
def pair(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Stop rank 3 in two groups: it sends nothing to rank 2 in one, and is killed in the other."""
    first, second = dist.new_group(), dist.new_group()
    if rank < 2:
        return
    for each in (first, second):
        exchange(rank, tensor, each)
        each.set_timeout(TIMEOUT)
    store = dist.distributed_c10d._get_default_store()
    if rank == 3:
        while not store.check(["rank 2 has failed"]):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
    assert "timed out" in error_text(lambda: [batch_from(3, tensor, first), tensor.sum().item()])
    store.set("rank 2 has failed", "")
    exchange(rank, tensor, second)


def batch_from(peer: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.irecv, each, peer, group) for each in tensor.chunk(2)]
    ):
        work.wait()


@case
def batch(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 2 sends to ranks 1 and 3 at once."""
    group = dist.new_group()
    if rank in (1, 3):
        dist.recv(tensor, 2, group=group)
        tensor.sum().item()
    if rank == 2:
        dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, peer, group) for peer in (1, 3)])


@case
def absent(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 does not join the first operation of a group."""
    group = dist.new_group()
    group.set_timeout(TIMEOUT)
    if rank == 1:
        await_ends(0, 2)
    else:
        dist.all_reduce(tensor, group=group)


@case
def first_on_cpu(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 passes a CPU tensor to the first operation of a group."""
    group = dist.new_group()
    try:
        if rank == 1:
            with report_timeout(group, times_out=False):
                work = dist.all_reduce(tensor.cpu(), group=group, async_op=True)
            work.wait()
        else:
            call_first(rank, tensor, group, "\n1 all_reduce\n")
    finally:
        if rank == 1:
            await_ends(0, 2)


@case
def first_crossed(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 calls the first operation of another group than the others do."""
    first, second = dist.new_group(), dist.new_group()
    for each in (first, second):
        each.set_timeout(TIMEOUT)
    if rank == 1:
        dist.all_reduce(tensor, group=second)
    else:
        call_first(rank, tensor, first, "\tthe first operation\n")


def call_first(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup, of_rank_1: str) -> None:
    """Call the first operation, on rank 2 once rank 0 joins; they time out after rank 1 published the text."""
    await_notices(group, [1], of_rank_1)
    if rank == 2:
        await_key(store_of(group), "chip/all/0/rank0")
    group.set_timeout(TIMEOUT)
    dist.all_reduce(tensor, group=group)


@case
def absent_from_the_first_barrier(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    group = dist.new_group()
    group.set_timeout(TIMEOUT)
    if rank == 1:
        await_ends(0, 2)
    else:
        dist.barrier(group=group)


@case
def aborted(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    if rank == 0:
        await_notices(group, [1], " #3\n")
        group.abort()
    with report_timeout(group, times_out=False):
        dist.all_reduce(tensor, group=group, async_op=True).wait()
    tensor.sum().item()


@case
def full_shared_memory(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Every operation continues, with chip and CPU tensors."""
    try:
        Path("/dev/shm/more").write_bytes(bytes(1 << 20))
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    else:
        raise AssertionError("/dev/shm is not full")
    run_every_collective(rank, tensor, group)


@case
def dies_with_its_job(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """All ranks are killed with collectives in flight and a third of their device's memory in use."""
    try:
        kept = torch.ones(320 << 18, device=tensor.device)
        dist.barrier(group=group)
        dist.all_reduce(kept, group=group, async_op=True)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


@case
def follows_a_dead_job(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Create the groups and allocate the memory of the dead job again."""
    kept = torch.ones(320 << 18, device=tensor.device)
    run_every_collective(rank, tensor, group)
    assert kept[:5].sum().item() == 5


def run_every_collective(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    size = dist.get_world_size(group)
    tensor.fill_(1)
    for elements in (10, tensor.numel()):
        part = tensor[:elements]
        dist.all_reduce(part, group=group)
        assert part.unique().tolist() == [size]
        part.fill_(rank)
        whole = part.new_empty(size * elements)
        dist.all_gather_into_tensor(whole, part, group=group)
        assert whole.unique().tolist() == list(range(size))
        part.fill_(1)
    cpu = torch.ones(1 << 20)
    dist.all_reduce(cpu, group=group)
    assert cpu.unique().tolist() == [size]


@case
def mismatch_in_debug_mode(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.all_reduce(tensor if rank != 1 else tensor[:5], group=group)


def error_text(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@contextmanager
def rank_1_last(rank: int, group: dist.ProcessGroup, last: int = 3) -> Iterator[None]:
    """Call operations on rank 1 once ranks 0 and 2 have enqueued theirs; no rank times out."""
    if rank == 1:
        await_notices(group, [0, 2], f" #{last}\n")
    with report_timeout(group, times_out=False):
        yield


@contextmanager
def rank_0_reports(rank: int, group: dist.ProcessGroup, of_rank_1: str) -> Iterator[None]:
    """Call operation 3 on rank 0 once rank 2 waits in it and rank 1 has published the text; rank 0 times out."""
    if rank == 0:
        await_notices(group, [1], of_rank_1)
        await_notices(group, [2], " #3\n")
    with report_timeout(group, rank == 0):
        yield


@contextmanager
def report_timeout(group: dist.ProcessGroup, times_out: bool) -> Iterator[None]:
    """Enqueue operations; if they do not time out here, another rank's report ends them."""
    group.set_timeout(TIMEOUT if times_out else PATIENCE)
    yield
    # Outstanding operations keep theirs. Ranks publish ten times in a timeout, and count as silent after that.
    group.set_timeout(PATIENCE if times_out else TIMEOUT)


def await_notices(group: dist.ProcessGroup, ranks: list[int], text: str) -> None:
    """Wait until each of the ranks has published its progress with this text in the store."""
    store = store_of(group)
    for key in (f"chip/at/{rank}" for rank in ranks):
        await_key(store, key)
        while text.encode() not in store.get(key):
            time.sleep(0.02)


def await_ends(*ranks: int) -> None:
    """Wait until the ranks' cases have ended."""
    for rank in ranks:
        await_key(dist.distributed_c10d._get_default_store(), f"ended/{rank}")


def await_key(store: dist.Store, key: str) -> None:
    # A blocking get() would hold the store, which this rank itself needs to report.
    while not store.check([key]):
        time.sleep(0.02)


def store_of(group: dist.ProcessGroup) -> dist.Store:
    """Return the part of the store where the chip's backend of the group keeps its keys."""
    _, parent = dist.distributed_c10d._world.pg_map[group]
    assert parent is not None
    members = "".join(f"{each}," for each in dist.get_process_group_ranks(group))
    part = f"chip/{hashlib.sha1(members.encode()).hexdigest()}/1/group"
    return dist.PrefixStore(part, dist.PrefixStore("chip/", parent))


def main() -> None:
    rank, size, port, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    device = torch.device("chip", rank % 2)
    torch.chip.set_device(device)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("chip", init_method=address, rank=rank, world_size=size)
    tensor = torch.ones(100_000, device=device)
    group = dist.group.WORLD if os.environ.get("FAULT_GROUP") == "default" else dist.new_group()
    assert group is not None
    works = [
        dist.all_reduce(tensor, group=group, async_op=True),
        dist.broadcast(tensor, 0, group=group, async_op=True),
    ]
    torch.chip.synchronize()
    assert all(work.is_completed() for work in works)  # a later failure is not theirs
    store = dist.distributed_c10d._get_default_store()
    store.set(f"starts/{rank}", "")
    for each in range(size):  # ranks start late on a busy machine
        await_key(store, f"starts/{each}")
    error = error_text(lambda: CASES[name](rank, tensor, group))
    store.set(f"ended/{rank}", "")
    again = error_text(lambda: dist.all_reduce(tensor, group=group))
    print(json.dumps({"error": error, "again": again}), flush=True)
    if rank == 0:
        sys.stdin.read()  # until the others have exited: it serves the store, which they query
    os._exit(0)  # like a failed job


if __name__ == "__main__":
    main()
