"""Each collective against its expected values; run_rank.py runs these."""

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions

from tests.helpers.rank_checks import check, equal, numbers, raises


@check
def broadcast(rank: int, device: torch.device) -> None:
    for source in (0, 1):
        tensor = numbers(rank, device)
        dist.broadcast(tensor, source)
        equal(tensor, [10.0 * source + i for i in range(4)])


@check
def all_reduce(rank: int, device: torch.device) -> None:
    expected = {
        "SUM": [10.0, 12.0],
        "AVG": [5.0, 6.0],
        "PRODUCT": [0.0, 11.0],
        "MIN": [0.0, 1.0],
        "MAX": [10.0, 11.0],
    }
    for name, values in expected.items():
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32):
            tensor = numbers(rank, device, 2, dtype)
            dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
            equal(tensor, values)
    for name, value in {"BAND": 2 & 12, "BOR": 2 | 12, "BXOR": 2 ^ 12}.items():
        tensor = torch.tensor([2 + 10 * rank], device=device)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
        equal(tensor, [value])


@check
def all_reduce_of_booleans(rank: int, device: torch.device) -> None:
    for op, expected in (
        (dist.ReduceOp.SUM, [True, True, False]),
        (dist.ReduceOp.PRODUCT, [True, False, False]),
    ):
        tensor = torch.tensor([True, rank == 0, False], device=device)
        dist.all_reduce(tensor, op)
        equal(tensor.view(torch.uint8), [int(value) for value in expected])  # no byte but 0 and 1


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
def reduce(rank: int, device: torch.device) -> None:
    tensor = numbers(rank, device)
    dist.reduce(tensor, 1, dist.ReduceOp.AVG)
    if rank == 1:
        equal(tensor, [5.0, 6.0, 7.0, 8.0])


@check
def all_gather(rank: int, device: torch.device) -> None:
    # The last four are moved as bytes: gloo has no such types.
    types = (
        torch.float32,
        torch.bfloat16,
        torch.bool,
        torch.int16,
        torch.complex64,
        torch.float8_e4m3fn,
        torch.uint16,
    )
    for dtype in types:
        parts = [torch.zeros(3, dtype=dtype, device=device) for _ in range(2)]
        dist.all_gather(parts, numbers(rank, device, 3, dtype))
        whole = torch.zeros(6, dtype=dtype, device=device)
        dist.all_gather_into_tensor(whole, numbers(rank, device, 3, dtype))
        for source, part in enumerate(parts):
            expected = numbers(source, torch.device("cpu"), 3, dtype)
            assert torch.equal(part.cpu().view(torch.uint8), expected.view(torch.uint8)), (dtype, part)
            assert torch.equal(
                whole[3 * source : 3 * source + 3].cpu().view(torch.uint8), expected.view(torch.uint8)
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
def gather_and_scatter(rank: int, device: torch.device) -> None:
    parts = [torch.zeros(2, device=device) for _ in range(2)]
    dist.gather(numbers(rank, device, 2), parts if rank == 0 else None, 0)
    if rank == 0:
        equal(torch.stack(parts), [[0.0, 1.0], [10.0, 11.0]])
    out = torch.zeros(2, device=device)
    dist.scatter(out, [numbers(0, device, 2), numbers(1, device, 2)] if rank == 1 else None, 1)
    equal(out, [10.0 * rank, 10.0 * rank + 1])


@check
def reduce_scatter(rank: int, device: torch.device) -> None:
    expected = [[10.0, 12.0], [14.0, 16.0]][rank]
    for op, scale in ((dist.ReduceOp.SUM, 1.0), (dist.ReduceOp.AVG, 0.5)):
        out = torch.zeros(2, device=device)
        dist.reduce_scatter(out, list(numbers(rank, device).split(2)), op)
        equal(out, [value * scale for value in expected])
        out = torch.zeros(2, device=device)
        dist.reduce_scatter_tensor(out, numbers(rank, device), op)
        equal(out, [value * scale for value in expected])
    source = numbers(rank, device)
    dist.reduce_scatter_tensor(source[2 * rank : 2 * rank + 2], source)  # in place, as FSDP does it
    equal(source[2 * rank : 2 * rank + 2], expected)
    sizes = (1, 3)
    out = torch.zeros(sizes[rank], device=device)
    dist.reduce_scatter(out, list(numbers(rank, device).split(sizes)))
    equal(out, [[10.0], [12.0, 14.0, 16.0]][rank])


@check
def all_to_all(rank: int, device: torch.device) -> None:
    out = torch.zeros(4, device=device)
    dist.all_to_all_single(out, numbers(rank, device))
    equal(out, [2.0 * rank, 2.0 * rank + 1, 10.0 + 2 * rank, 11.0 + 2 * rank])
    send, receive = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
    for dtype in (torch.float32, torch.int16):
        out = torch.zeros(sum(receive), 2, dtype=dtype, device=device)
        rows = numbers(rank, device, 4, dtype)[:, None].expand(4, 2).contiguous()
        dist.all_to_all_single(out, rows, receive, send)
        equal(out[:, 1], [0, 10, 11] if rank == 0 else [1, 2, 3, 12, 13])
    parts = [torch.zeros(2, device=device), torch.zeros(2, device=device)]
    dist.all_to_all(parts, list(numbers(rank, device).split(2)))
    equal(torch.cat(parts), [2.0 * rank, 2.0 * rank + 1, 10.0 + 2 * rank, 11.0 + 2 * rank])


@check
def send_and_receive(rank: int, device: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int16):
        out = torch.zeros(4, dtype=dtype, device=device)
        if rank == 0:
            dist.send(numbers(0, device, 4, dtype), 1)
            assert dist.recv(out) == 1  # from any source
            equal(out, [10, 11, 12, 13])
        else:
            dist.recv(out, 0)
            equal(out, [0, 1, 2, 3])
            dist.send(numbers(1, device, 4, dtype), 0)


@check
def batched_point_to_point(rank: int, device: torch.device) -> None:
    out = torch.zeros(4, device=device)
    operations = [
        dist.P2POp(dist.isend, numbers(rank, device), 1 - rank),
        dist.P2POp(dist.irecv, out, 1 - rank),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    equal(out, numbers(1 - rank, torch.device("cpu")))


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
