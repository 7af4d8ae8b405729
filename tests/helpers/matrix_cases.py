"""The collective matrix: each operation of ``torch.distributed`` on a device, for each dtype and ReduceOp.

Against a computation on the CPU from inputs that every rank can make; run_rank.py runs these on chips, and
packages/isthmus-ascend/tests/runtime/ranks.py on NPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from tests.helpers.rank_checks import raises

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
SMALL_FLOATS = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
ONLY_MOVED = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
MOVED = (
    *FLOATS,
    *INTEGERS,
    *COMPLEX,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    *ONLY_MOVED,
    torch.uint16,
)
COUNTS = (0, 1, 7, 5003)  # the last exceeds one piece in the host chip's control file

Op = dist.ReduceOp
REDUCE_OPS = {
    "SUM": (Op.SUM, (*FLOATS, *INTEGERS, *COMPLEX, torch.bool)),
    "AVG": (Op.AVG, (*FLOATS, *INTEGERS, *COMPLEX)),
    "PRODUCT": (Op.PRODUCT, (*FLOATS, *INTEGERS, torch.bool)),
    "MIN": (Op.MIN, (*FLOATS, *INTEGERS, torch.bool)),
    "MAX": (Op.MAX, (*FLOATS, *INTEGERS, torch.bool)),
    "BAND": (Op.BAND, (*INTEGERS, torch.bool)),
    "BOR": (Op.BOR, (*INTEGERS, torch.bool)),
    "BXOR": (Op.BXOR, (*INTEGERS, torch.bool)),
    "PREMUL_SUM": (dist._make_nccl_premul_sum(0.5), (*FLOATS, *COMPLEX)),
}


class Team:
    """A group, and this rank's position in it."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self.group = group
        self.device = device
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.ranks = dist.get_process_group_ranks(group)

    def on_device(self, values: Tensor) -> Tensor:
        return values.to(self.device, copy=True)

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.full((count,), 1, dtype=torch.float32).to(dtype).to(self.device)

    def equal(self, result: Tensor, expected: Tensor) -> None:
        assert result.device.type == self.device.type, result.device
        assert result.dtype == expected.dtype, (result.dtype, expected.dtype)
        found = result.cpu().contiguous()
        if found.numel():
            # Bytes: an average of three ranks is rounded once, at most to a neighbour in half precision.
            assert found.view(torch.uint8).equal(expected.contiguous().view(torch.uint8)), (found, expected)


def teams(device: torch.device) -> Iterator[Team]:
    """Yield the group of all ranks, and of half of them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    assert dist.group.WORLD is not None
    yield Team(dist.group.WORLD, device)
    if size > 2:
        halves = [dist.new_group(list(range(start, size, 2))) for start in range(2)]
        yield Team(halves[rank % 2], device)


def values(rank: int, count: int, dtype: torch.dtype) -> Tensor:
    """Small whole numbers, so that sums and products of eight ranks are exact in every dtype."""
    numbers = (torch.arange(count) + 3 * rank) % 3
    if dtype == torch.bool:
        return numbers == 1
    if dtype.is_complex:
        return torch.complex(numbers.double(), (numbers + 1.0).double()).to(dtype)
    return (numbers if not dtype.is_floating_point else numbers.float()).to(dtype)


def expected_reduction(name: str, parts: list[Tensor]) -> Tensor:
    """Expected reduction of all ranks' parts."""
    first = parts[0]
    if first.dtype == torch.bool and name not in ("BAND", "BOR", "BXOR"):
        stacked = torch.stack(parts)
        return stacked.all(0) if name in ("PRODUCT", "MIN") else stacked.any(0)
    wide = first.dtype if first.is_complex() or not first.is_floating_point() else torch.float64
    stacked = torch.stack([part.to(wide) for part in parts])
    if name in ("BAND", "BOR", "BXOR"):
        function = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}[name]
        result = stacked[0]
        for part in stacked[1:]:
            result = function(result, part)
        return result
    results: dict[str, Callable[[], Tensor]] = {
        "SUM": lambda: stacked.sum(0),
        "AVG": lambda: stacked.sum(0) / len(parts),
        "PRODUCT": lambda: stacked.prod(0),
        "MIN": lambda: stacked.amin(0),
        "MAX": lambda: stacked.amax(0),
        "PREMUL_SUM": lambda: stacked.sum(0) * 0.5,
    }
    return results[name]().to(first.dtype)


def reductions(team: Team, name: str, op: object, dtype: torch.dtype, count: int) -> None:
    parts = [values(rank, count, dtype) for rank in range(team.size)]
    whole = expected_reduction(name, parts)
    tensor = team.on_device(parts[team.rank])
    dist.all_reduce(tensor, op, group=team.group)
    team.equal(tensor, whole)
    root = team.size - 1
    tensor = team.on_device(parts[team.rank])
    dist.reduce(tensor, team.ranks[root], op, group=team.group)
    if team.rank == root:
        team.equal(tensor, whole)


def reduce_scatters(team: Team, name: str, op: object, dtype: torch.dtype, count: int) -> None:
    longer = [values(rank, count * team.size, dtype) for rank in range(team.size)]
    expected = expected_reduction(name, longer).split(count)[team.rank] if count else longer[0]
    out = team.empty(count, dtype)
    dist.reduce_scatter_tensor(out, team.on_device(longer[team.rank]), op, group=team.group)
    team.equal(out, expected)
    out = team.empty(count, dtype)
    pieces = list(team.on_device(longer[team.rank]).split(count)) if count else [out] * team.size
    dist.reduce_scatter(out, pieces, op, group=team.group)
    team.equal(out, expected)


def overflow(team: Team, dtype: torch.dtype) -> None:
    """Overflowing sums become the largest number or infinity, by the format, as in PyTorch."""
    largest = torch.finfo(dtype).max
    ends = [0.0, 1.0, largest / 64, largest / 32, largest / 2, largest, math.inf, math.nan]
    pairs = [(a, sign * b) for a in ends for b in ends for sign in (1, -1)]
    first, second = torch.tensor(pairs).to(dtype).unbind(1)
    # The others contribute zeros, so the order does not matter.
    parts = [first, *[torch.zeros_like(first)] * (team.size - 2), second][: team.size]
    tensor = team.on_device(parts[team.rank])
    dist.all_reduce(tensor, group=team.group)
    whole = first.float() + second.float() if team.size > 1 else first.float()
    expected = whole.to(dtype)
    torch.testing.assert_close(tensor.cpu().float(), expected.float(), rtol=0, atol=0, equal_nan=True)


def unequal_reduce_scatter(team: Team, dtype: torch.dtype) -> None:
    sizes = [rank + 1 for rank in range(team.size)]
    parts = [values(rank, sum(sizes), dtype) for rank in range(team.size)]
    out = team.empty(sizes[team.rank], dtype)
    dist.reduce_scatter(out, list(team.on_device(parts[team.rank]).split(sizes)), group=team.group)
    team.equal(out, expected_reduction("SUM", parts).split(sizes)[team.rank])


def gathers(team: Team, dtype: torch.dtype, count: int) -> None:
    parts = [values(rank, count, dtype) for rank in range(team.size)]
    mine = team.on_device(parts[team.rank])
    out = [team.empty(count, dtype) for _ in parts]
    dist.all_gather(out, mine, group=team.group)
    whole = team.empty(count * team.size, dtype)
    dist.all_gather_into_tensor(whole, mine, group=team.group)
    team.equal(whole, torch.cat(parts))
    root = team.size // 2
    gathered = [team.empty(count, dtype) for _ in parts]
    to = gathered if team.rank == root else None
    dist.gather(mine, to, team.ranks[root], group=team.group)
    for rank, part in enumerate(parts):
        team.equal(out[rank], part)
        if team.rank == root:
            team.equal(gathered[rank], part)


def unequal_gather(team: Team, dtype: torch.dtype) -> None:
    sizes = [rank + 2 for rank in range(team.size)]
    uneven = [values(rank, size, dtype) for rank, size in enumerate(sizes)]
    out = [team.empty(size, dtype) for size in sizes]
    dist.all_gather(out, team.on_device(uneven[team.rank]), group=team.group)
    for rank, part in enumerate(uneven):
        team.equal(out[rank], part)


def from_root(team: Team, dtype: torch.dtype, count: int) -> None:
    root = team.size - 1
    parts = [values(rank, count, dtype) for rank in range(team.size)]
    tensor = team.on_device(parts[team.rank])
    dist.broadcast(tensor, team.ranks[root], group=team.group)
    team.equal(tensor, parts[root])
    out = team.empty(count, dtype)
    given = [team.on_device(part) for part in parts] if team.rank == root else None
    dist.scatter(out, given, team.ranks[root], group=team.group)
    team.equal(out, parts[team.rank])


def exchanges(team: Team, dtype: torch.dtype, count: int) -> None:
    def sent(source: int, target: int, size: int) -> Tensor:
        return values(source * 5 + target, size, dtype)

    everybody = range(team.size)
    out = team.empty(count * team.size, dtype)
    given = torch.cat([sent(team.rank, target, count) for target in everybody])
    dist.all_to_all_single(out, team.on_device(given), group=team.group)
    team.equal(out, torch.cat([sent(source, team.rank, count) for source in everybody]))
    size = {(a, b): (a + 2 * b) % 3 for a in everybody for b in everybody}
    given_list = [sent(team.rank, target, size[team.rank, target]) for target in everybody]
    expected = [sent(source, team.rank, size[source, team.rank]) for source in everybody]
    out = team.empty(sum(part.numel() for part in expected), dtype)
    splits = [part.numel() for part in expected], [part.numel() for part in given_list]
    dist.all_to_all_single(out, team.on_device(torch.cat(given_list)), *splits, group=team.group)
    team.equal(out, torch.cat(expected))


def unequal_exchange(team: Team, dtype: torch.dtype) -> None:
    given_list = [
        values(team.rank + target, (team.rank + 2 * target) % 3, dtype) for target in range(team.size)
    ]
    expected = [
        values(source + team.rank, (source + 2 * team.rank) % 3, dtype) for source in range(team.size)
    ]
    taken = [team.empty(part.numel(), dtype) for part in expected]
    dist.all_to_all(taken, [team.on_device(part) for part in given_list], group=team.group)
    for found, part in zip(taken, expected, strict=True):
        team.equal(found, part)


def messages(team: Team, dtype: torch.dtype, count: int) -> None:
    """Around the ring in a batch, then between pairs."""
    if team.size == 1:
        return
    after, before = (team.rank + 1) % team.size, (team.rank - 1) % team.size
    mine, out = team.on_device(values(team.rank, count, dtype)), team.empty(count, dtype)
    batch = [
        dist.P2POp(dist.isend, mine, team.ranks[after], team.group),
        dist.P2POp(dist.irecv, out, team.ranks[before], team.group),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    team.equal(out, values(before, count, dtype))
    if team.rank % 2 == 0 and after != 0:
        dist.send(mine, team.ranks[after], group=team.group)
    elif team.rank % 2 == 1:
        out = team.empty(count, dtype)
        dist.recv(out, team.ranks[before], group=team.group)
        team.equal(out, values(before, count, dtype))


def check_coalesced(team: Team, dtype: torch.dtype, count: int) -> None:
    sizes = (count, count + 1)
    parts = [[values(rank + i, size, dtype) for i, size in enumerate(sizes)] for rank in range(team.size)]
    tensors = [team.on_device(part) for part in parts[team.rank]]
    with dist._coalescing_manager(team.group, team.device):
        for tensor in tensors:
            dist.all_reduce(tensor, group=team.group)
    for i, tensor in enumerate(tensors):
        team.equal(tensor, expected_reduction("SUM", [part[i] for part in parts]))
    wholes = [team.empty(size * team.size, dtype) for size in sizes]
    with dist._coalescing_manager(team.group, team.device):
        for whole, part in zip(wholes, parts[team.rank], strict=True):
            dist.all_gather_into_tensor(whole, team.on_device(part), group=team.group)
    for i, whole in enumerate(wholes):
        team.equal(whole, torch.cat([part[i] for part in parts]))


def cases(team: Team) -> Iterator[tuple[str, Callable[[], None]]]:
    for name, (op, dtypes) in REDUCE_OPS.items():
        for dtype in dtypes:
            for count in COUNTS:
                for function in (reductions, reduce_scatters):
                    case = f"{function.__name__} {name} {dtype} {count}"
                    yield case, lambda f=function, a=(name, op, dtype, count): f(team, *a)
    for dtype in MOVED:
        for unequal in (unequal_gather, unequal_exchange):
            yield f"{unequal.__name__} {dtype}", lambda f=unequal, a=dtype: f(team, a)
        for function in (gathers, from_root, exchanges, messages):
            for count in COUNTS:
                yield f"{function.__name__} {dtype} {count}", lambda f=function, a=(dtype, count): f(team, *a)
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        yield f"unequal_reduce_scatter {dtype}", lambda a=dtype: unequal_reduce_scatter(team, a)
        yield f"coalesced {dtype}", lambda a=dtype: check_coalesced(team, a, 7)
    for dtype in SMALL_FLOATS:
        yield f"overflow {dtype}", lambda a=dtype: overflow(team, a)
    yield "refusals", lambda: refusals(team)


def refusals(team: Team) -> None:
    """Pairs of dtype and ReduceOp without a meaning; nothing is enqueued, so the ranks stay together."""
    for name, (op, dtypes) in REDUCE_OPS.items():
        for dtype in (*FLOATS, *INTEGERS, *COMPLEX, torch.bool):
            tensor = team.on_device(values(team.rank, 3, dtype))
            if dtype in dtypes:
                continue
            try:
                dist.all_reduce(tensor, op, group=team.group)
            except (TypeError, ValueError, NotImplementedError) as error:
                assert str(error), (name, dtype)
            else:
                raise AssertionError(f"all_reduce of {name} and {dtype} did not raise")
            team.equal(tensor, values(team.rank, 3, dtype))
    for dtype in ONLY_MOVED:
        tensor = team.empty(3, dtype)
        raises(
            TypeError,
            "all_reduce does not reduce torch.float8",
            lambda t=tensor: dist.all_reduce(t, group=team.group),
        )
