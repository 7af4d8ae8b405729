"""One rank of a job that goes wrong: ``python -m tests.helpers.fault_cases RANK SIZE PORT CASE``.

Prints one line of JSON: what the rank was told and after how many seconds, and what the next operation said.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=3)
SAY_HOW_FAR = ("stopped", "late")  # their rank 1 must have reported its last operation
HEALTHY = (
    "full_shared_memory",
    "dies_with_its_job",
    "follows_a_dead_job",
    "healthy",
)  # no rank waits for the timeout
CASES: dict[str, Callable[[int, torch.Tensor, dist.ProcessGroup], None]] = {}
Case = Callable[[int, torch.Tensor, dist.ProcessGroup], None]


class Uncaught(BaseException):
    """Kill the process."""


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


@case
def killed(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    if rank == 1:
        torch.chip.synchronize()
        time.sleep(0.3)  # until the others have completed what is before it
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(tensor, group=group)
    tensor.sum().item()


@case
def stopped(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(tensor, group=group)
    tensor.sum().item()


@case
def late(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 runs but does not call the collective."""
    if rank == 1:
        time.sleep(TIMEOUT.total_seconds() + 2)
    dist.all_reduce(tensor, group=group, async_op=True).wait()
    torch.chip.synchronize()


@case
def healthy(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    everything(rank, tensor, group)
    folder = Path(os.environ["FLIGHT_RECORDS"])
    (folder / f"rank_{rank}").write_bytes(torch.chip.dump_flight_recorder())


@case
def raised(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 raises an exception; the others wait for it."""
    if rank == 1:
        print("{}", flush=True)
        raise Uncaught
    dist.all_reduce(tensor, group=group)
    torch.chip.synchronize()


@case
def differs_among_others(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Operation 8 differs; 3 to 7 are probably not yet known to be complete, and 9 and 10 are queued after it."""
    for operation in range(3, 11):
        if operation == 8 and rank == 1:
            dist.broadcast(tensor, 0, group=group)
        else:
            dist.all_reduce(tensor, group=group)
    torch.chip.synchronize()


@case
def skipped(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    if rank != 1:
        dist.broadcast(tensor, 0, group=group)
    dist.all_reduce(tensor, group=group)
    torch.chip.synchronize()


@case
def other_shape(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.all_reduce(tensor if rank != 1 else tensor[:5], group=group)
    tensor.sum().item()


@case
def other_dtype(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.all_reduce(tensor if rank != 1 else tensor.to(torch.int8), group=group)
    tensor.sum().item()


@case
def on_cpu(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 passes tensors of two devices, which raises there and is caught."""
    output = tensor.new_empty(tensor.numel() * dist.get_world_size(group))
    dist.all_gather_into_tensor(output, tensor.cpu() if rank == 1 else tensor, group=group)
    torch.chip.synchronize()


@case
def wholly_on_cpu(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 1 passes a CPU tensor, which goes to gloo."""
    dist.all_reduce(tensor.cpu() if rank == 1 else tensor, group=group)
    torch.chip.synchronize()


@case
def crossed_on_the_host(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """The same, where the host waits for each operation."""
    cross(rank, tensor, group, torch.chip.synchronize)


@case
def crossed(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Two groups in one order on rank 1 and in the other on the other ranks, on one stream."""
    cross(rank, tensor, group, lambda: None)


def cross(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup, between: Callable[[], object]) -> None:
    second = dist.new_group()
    dist.all_reduce(tensor, group=second)
    torch.chip.synchronize()
    second.set_timeout(TIMEOUT)
    for each in (second, group) if rank == 1 else (group, second):
        dist.all_reduce(tensor, group=each)
        between()
    torch.chip.synchronize()


@case
def unanswered(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """A message that rank 1 does not receive."""
    if rank == 0:
        dist.recv(tensor, 1, group=group)
        tensor.sum().item()
    time.sleep(TIMEOUT.total_seconds() + 2)


def exchange(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """A batch of a message each way between ranks 2 and 3."""
    peer, received = 5 - rank, torch.zeros_like(tensor)
    messages = [dist.P2POp(dist.irecv, received, peer, group), dist.P2POp(dist.isend, tensor, peer, group)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    received.sum().item()


@case
def pair(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """In one group rank 3 sends nothing to rank 2, in another it is killed. The other ranks do nothing."""
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
    assert "timed out" in said(lambda: [batch_from(3, tensor, first), tensor.sum().item()])
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
    group = dist.new_group(timeout=TIMEOUT)
    if rank == 1:
        time.sleep(TIMEOUT.total_seconds() + 2)
    dist.all_reduce(tensor, group=group)


@case
def absent_from_the_first_barrier(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    group = dist.new_group(timeout=TIMEOUT)
    if rank == 1:
        time.sleep(TIMEOUT.total_seconds() + 2)
    dist.barrier(group=group)


@case
def aborted(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    if rank == 0:
        time.sleep(0.5)
        group.abort()
        dist.all_reduce(tensor, group=group)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    work.wait()
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
    everything(rank, tensor, group)


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
    everything(rank, tensor, group)
    assert kept[:5].sum().item() == 5


def everything(rank: int, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
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


def said(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def await_boards(group: dist.ProcessGroup, size: int) -> None:
    """Wait until every rank has reported in the store that it reached the second operation."""
    _, parent = dist.distributed_c10d._world.pg_map[group]
    assert parent is not None
    members = "".join(f"{each}," for each in dist.get_process_group_ranks(group))
    part = f"chip/{hashlib.sha1(members.encode()).hexdigest()}/1/group"
    store = dist.PrefixStore(part, dist.PrefixStore("chip/", parent))
    for key in (f"chip/at/{rank}" for rank in range(size)):
        # A blocking get() would hold the store, which this rank itself needs to report.
        while not store.check([key]) or int(store.get(key).split()[0]) < 2:
            time.sleep(0.02)


def main() -> None:
    rank, size, port, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    device = torch.device("chip", rank % 2)
    torch.chip.set_device(device)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("chip", init_method=address, rank=rank, world_size=size)
    tensor = torch.ones(100_000, device=device)
    # With a long timeout: ranks start late on a busy machine.
    group = dist.group.WORLD if os.environ.get("FAULT_GROUP") == "default" else dist.new_group()
    assert group is not None
    dist.all_reduce(tensor, group=group)
    dist.broadcast(tensor, 0, group=group)
    torch.chip.synchronize()
    if name not in HEALTHY:
        group.set_timeout(TIMEOUT)
    if name in SAY_HOW_FAR:
        await_boards(group, size)
    begin = time.monotonic()
    error = said(lambda: CASES[name](rank, tensor, group))
    seconds = time.monotonic() - begin
    again = said(lambda: dist.all_reduce(tensor, group=group))
    print(json.dumps({"error": error, "seconds": seconds, "again": again}), flush=True)
    if rank == 0:
        sys.stdin.read()  # until the others have exited: it serves the store, which they query
    os._exit(0)  # like a failed job


if __name__ == "__main__":
    main()
