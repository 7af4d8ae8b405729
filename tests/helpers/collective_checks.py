"""Each collective against its expected values; run_rank.py runs these."""

import re

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions

from tests.helpers.matrix_cases import Team, cases
from tests.helpers.rank_checks import check, equal, numbers, raises


@check
def every_operation(rank: int, device: torch.device) -> None:
    """The collective matrix, without the reductions that gloo lacks."""
    lacking = re.compile(r"^(reduc|coalesced|overflow).*(int16|complex|PREMUL_SUM|float8)|refusals")
    assert dist.group.WORLD is not None
    for name, case in cases(Team(dist.group.WORLD, device)):
        if not lacking.search(name):
            try:
                case()
            except Exception as error:
                raise AssertionError(name) from error


def averages_of(rank: int, device: torch.device, dtype: torch.dtype) -> None:
    """Averages of -3 + -4, 3 + 4, 7 + 7 and 100 + 100, rounded toward zero, after a sum in the dtype itself."""
    signed = torch.iinfo(dtype).min < 0
    given = torch.tensor([-3 - rank if signed else 1 + rank, 3 + rank, 7, 100], dtype=dtype, device=device)
    wide = torch.tensor([-7 if signed else 3, 7, 14, 200]).to(dtype).long()
    expected = wide.div(2, rounding_mode="trunc").tolist()
    tensor = given.clone()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    equal(tensor.long(), expected)
    strided = torch.zeros(4, 2, dtype=dtype, device=device)[:, 0].copy_(given)
    dist.all_reduce(strided, dist.ReduceOp.AVG)
    equal(strided.long(), expected)
    tensor = given.clone()
    dist.reduce(tensor, 1, dist.ReduceOp.AVG)
    if rank == 1:
        equal(tensor.long(), expected)
    mine = expected[2 * rank : 2 * rank + 2]
    out = torch.zeros(2, dtype=dtype, device=device)
    dist.reduce_scatter_tensor(out, given, dist.ReduceOp.AVG)
    equal(out.long(), mine)
    out.zero_()
    dist.reduce_scatter(out, list(given.split(2)), dist.ReduceOp.AVG)
    equal(out.long(), mine)
    tensors = [given.clone(), given.clone()]
    with dist._coalescing_manager(device=device):
        for tensor in tensors:
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
    equal(torch.stack(tensors).long(), [expected, expected])


@check
def averages_of_integers(rank: int, device: torch.device) -> None:
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):  # those of gloo
        averages_of(rank, device, dtype)


def averages_of_more_integers(rank: int, device: torch.device) -> None:
    for dtype in (torch.int16, torch.uint16, torch.uint32, torch.uint64):
        averages_of(rank, device, dtype)
    high = torch.tensor([2**63 + 2 * rank], dtype=torch.uint64, device=device)  # the sum wraps around to 2
    low = torch.tensor([2**62 + 2**61 + rank], dtype=torch.uint64, device=device)  # the sum exceeds int64
    for tensor, expected in ((high, 1), (low, 2**62 + 2**61)):
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        assert tensor.cpu().item() == expected


@check
def refusals(rank: int, device: torch.device) -> None:
    truth = torch.tensor([True], device=device)
    raises(TypeError, "AVG does not take torch.bool", lambda: dist.all_reduce(truth, dist.ReduceOp.AVG))
    mixed = [torch.zeros(2, device=device), torch.zeros(2)]
    raises(
        RuntimeError,
        "takes tensors of one device",
        lambda: dist.all_gather(mixed, torch.zeros(2, device=device)),
    )
    short_input = torch.zeros(3, device=device)
    raises(
        ValueError,
        "not 2 times",
        lambda: dist.reduce_scatter_tensor(torch.zeros(2, device=device), short_input),
    )


@check
def lists_of_several_tensors(rank: int, device: torch.device) -> None:
    """An operation accepts one tensor or list per rank; a second one would be ignored."""
    group = dist.group.WORLD
    assert group is not None
    backend = group._get_backend(device)
    two = [torch.zeros(2, device=device) for _ in range(2)]
    calls = {
        "broadcast takes one tensor, not 2": lambda: backend.broadcast(two, dist.BroadcastOptions()),
        "all_reduce takes one tensor, not 2": lambda: backend.allreduce(two, dist.AllreduceOptions()),
        "reduce takes one tensor, not 2": lambda: backend.reduce(two, dist.ReduceOptions()),
        "all_gather takes one input, not 2": lambda: backend.allgather([two, two], two, AllgatherOptions()),
        "all_gather takes one list of outputs, not 2": lambda: backend.allgather(
            [two, two], two[:1], AllgatherOptions()
        ),
        "gather takes one list of tensors, not 2": lambda: backend.gather(
            [two, two], two[:1], dist.GatherOptions()
        ),
        "scatter takes one output, not 2": lambda: backend.scatter(two, [two], dist.ScatterOptions()),
        "send takes one tensor, not 2": lambda: backend.send(two, 1 - rank, 0),
        "recv takes one tensor, not 0": lambda: backend.recv([], 1 - rank, 0),
    }
    for message, call in calls.items():
        raises(ValueError, message, call)


@check
def refusals_of_gloo(rank: int, device: torch.device) -> None:
    short = numbers(rank, device, 2, torch.int16)
    raises(TypeError, "all_reduce does not reduce torch.int16 on chip", lambda: dist.all_reduce(short))
    premultiplied = dist._make_nccl_premul_sum(2.0)
    raises(RuntimeError, "PREMUL_SUM", lambda: dist.all_reduce(torch.ones(2, device=device), premultiplied))


@check
def reductions_of_the_driver(rank: int, device: torch.device) -> None:
    """Dtypes and operations that gloo lacks."""
    short = numbers(rank, device, 2, torch.int16)
    dist.all_reduce(short)
    equal(short, [10, 12])
    for factor in (0.5 + rank, torch.tensor(0.5 + rank, device=device)):
        weighted = numbers(rank, device, 2)
        dist.all_reduce(weighted, dist._make_nccl_premul_sum(factor))
        equal(weighted, [15.0, 17.0])
    pairs = torch.complex(numbers(rank, device, 2), numbers(rank, device, 2))
    dist.all_reduce(pairs, dist.ReduceOp.AVG)
    equal(pairs, [5 + 5j, 6 + 6j])
    averages_of_more_integers(rank, device)
    raises(TypeError, "complex numbers have sums", lambda: dist.reduce(pairs, 0, dist.ReduceOp.MAX))
    raises(
        TypeError,
        "PREMUL_SUM takes floating-point",
        lambda: dist.all_reduce(short, dist._make_nccl_premul_sum(2.0)),
    )


@check
def all_gather_in_place_and_stacked(rank: int, device: torch.device) -> None:
    whole = torch.zeros(8, device=device)
    mine = whole[4 * rank : 4 * rank + 4]
    mine.copy_(numbers(rank, device))
    dist.all_gather_into_tensor(whole, mine)
    equal(whole, [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0])
    stacked = torch.zeros(2, 4, device=device)
    dist.all_gather_into_tensor(stacked, numbers(rank, device))
    equal(stacked, [[0.0, 1.0, 2.0, 3.0], [10.0, 11.0, 12.0, 13.0]])


@check
def reduce_scatter_in_place(rank: int, device: torch.device) -> None:
    """As FSDP does it."""
    source = numbers(rank, device)
    dist.reduce_scatter_tensor(source[2 * rank : 2 * rank + 2], source)
    equal(source[2 * rank : 2 * rank + 2], [[10.0, 12.0], [14.0, 16.0]][rank])


@check
def exchange_of_rows(rank: int, device: torch.device) -> None:
    send, receive = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
    out = torch.zeros(sum(receive), 2, device=device)
    dist.all_to_all_single(out, numbers(rank, device)[:, None].expand(4, 2).contiguous(), receive, send)
    equal(out[:, 1], [0, 10, 11] if rank == 0 else [1, 2, 3, 12, 13])


@check
def receive_from_any_source(rank: int, device: torch.device) -> None:
    if rank == 1:
        dist.send(numbers(1, device), 0)
        return
    out = torch.zeros(4, device=device)
    assert dist.recv(out) == 1
    equal(out, [10, 11, 12, 13])


@check
def any_layout(rank: int, device: torch.device) -> None:
    """Ranks may use different strides, and memory between a tensor's elements is not changed."""
    base = torch.full((3, 8), -1.0, device=device)
    strided = base[:, ::2] if rank == 0 else torch.empty(4, 3, device=device).t()
    strided.copy_(numbers(rank, device, 12).view(3, 4))
    dist.all_reduce(strided)
    equal(strided, (2 * torch.arange(12.0) + 10).view(3, 4))
    if rank == 0:
        equal(base[:, 1::2], torch.full((3, 4), -1.0))
    parts = [torch.zeros(2, 2, device=device).t() for _ in range(2)]
    dist.all_gather(parts, numbers(rank, device).view(2, 2).t())
    equal(torch.stack(parts), [[[0.0, 2.0], [1.0, 3.0]], [[10.0, 12.0], [11.0, 13.0]]])
    dist.all_reduce(torch.zeros(0, device=device))
    scalar = torch.tensor(1.0 + rank, device=device)
    dist.all_reduce(scalar)
    equal(scalar, 3.0)


@check
def coalesced(rank: int, device: torch.device) -> None:
    first, second = numbers(rank, device), numbers(rank, device, 2)
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(first)
        dist.all_reduce(second)
    manager.wait()
    equal(first, [10.0, 12.0, 14.0, 16.0])
    equal(second, [10.0, 12.0])
    whole, share = torch.zeros(4, device=device), torch.zeros(2, device=device)
    with dist._coalescing_manager(device=device):
        dist.all_gather_into_tensor(whole, numbers(rank, device, 2))
    with dist._coalescing_manager(device=device):
        dist.reduce_scatter_tensor(share, numbers(rank, device))
    equal(whole, [0.0, 1.0, 10.0, 11.0])
    equal(share, [[10.0, 12.0], [14.0, 16.0]][rank])


@check
def asynchronous_work(rank: int, device: torch.device) -> None:
    for start in (
        lambda tensor: dist.all_reduce(tensor, async_op=True),
        lambda tensor: dist.broadcast(tensor, 0, async_op=True),
        lambda tensor: dist.reduce_scatter_tensor(tensor, tensor.repeat(2), async_op=True),
    ):
        tensor = torch.ones(1 << 16, device=device)
        work = start(tensor)
        future = work.get_future().then(lambda done: done.value()[0] * 2)
        doubled = future.wait()
        work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.result()[0].data_ptr() == tensor.data_ptr()
        assert doubled.device == device
        assert torch.equal(doubled, tensor * 2)
    dist.all_reduce(
        torch.ones(1 << 16, device=device), async_op=True
    )  # dropped: the work keeps its tensors alive
    dist.barrier()


@check
def side_stream(rank: int, device: torch.device) -> None:
    tensor = torch.zeros(1 << 20, device=device)
    source = torch.ones(1 << 20).pin_memory()
    stream = torch.chip.Stream(device)
    with torch.chip.stream(stream):
        tensor.copy_(source, non_blocking=True)
        dist.all_reduce(tensor)
    torch.chip.current_stream().wait_stream(stream)
    assert torch.all(tensor == 2)


@check
def cpu_tensors(rank: int, device: torch.device) -> None:
    tensor = torch.ones(3) + rank
    dist.all_reduce(tensor)
    assert tensor.device.type == "cpu"
    assert tensor.tolist() == [3.0, 3.0, 3.0]
    objects: list[object] = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]


@check
def functional(rank: int, device: torch.device) -> None:
    from torch.distributed import _functional_collectives as functions

    tensor = numbers(rank, device)
    equal(functions.all_reduce(tensor, "sum", [0, 1]).clone(), [10.0, 12.0, 14.0, 16.0])
    equal(functions.all_gather_tensor(tensor[:1], 0, [0, 1]).clone(), [0.0, 10.0])
    equal(functions.reduce_scatter_tensor(tensor, "avg", 0, [0, 1]).clone(), [[5.0, 6.0], [7.0, 8.0]][rank])
