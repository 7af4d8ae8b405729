"""Groups whose first operations are messages, groups made by splitting, and the whole matrix; run_rank.py runs it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from tests.helpers.matrix_cases import (
    Op,
    Team,
    cases,
    exchanges,
    expected_reduction,
    messages,
    reductions,
    teams,
    values,
)
from tests.helpers.rank_checks import check, raises


def ring_of_messages(team: Team) -> None:
    """Each rank sends, then receives: no rank may wait in isend for one that waits in its own."""
    after, before = (team.rank + 1) % team.size, (team.rank - 1) % team.size
    mine = team.on_device(values(team.rank, 5003, torch.float32))
    sent = [dist.isend(mine, team.ranks[after], team.group) for _ in range(2)]
    for _ in range(2):
        out = team.empty(5003, torch.float32)
        received = dist.irecv(out, team.ranks[before], team.group)
        assert received is not None
        received.wait()
        team.equal(out, values(before, 5003, torch.float32))
    for work in sent:
        assert work is not None
        work.wait()


def message_around_a_collective(team: Team) -> None:
    """Rank 0 sends before the first collective, and the last rank receives after it."""
    last = team.size - 1
    mine, out = team.on_device(values(team.rank, 7, torch.int64)), team.empty(7, torch.int64)
    work = dist.isend(mine, team.ranks[last], team.group) if team.rank == 0 else None
    total = team.on_device(values(team.rank, 7, torch.int64))
    dist.all_reduce(total, group=team.group)
    team.equal(total, expected_reduction("SUM", [values(rank, 7, torch.int64) for rank in range(team.size)]))
    if team.rank == 0:
        dist.send(mine + 1, team.ranks[last], team.group)
    for step in range(2 if team.rank == last else 0):
        dist.recv(out, team.ranks[0], team.group)
        team.equal(out, values(0, 7, torch.int64) + step)
    if work is not None:
        work.wait()


def tagged_messages(team: Team) -> None:
    """Messages received in another order than sent, distinguished by tags."""
    after, before = (team.rank + 1) % team.size, (team.rank - 1) % team.size
    sent = [
        dist.isend(
            team.on_device(values(team.rank + tag, 7, torch.float32)), team.ranks[after], team.group, tag
        )
        for tag in range(3)
    ]
    for tag in (2, 0, 1):
        out = team.empty(7, torch.float32)
        dist.recv(out, team.ranks[before], team.group, tag)
        team.equal(out, values(before + tag, 7, torch.float32))
    for work in sent:
        assert work is not None
        work.wait()


def messages_on_another_device(team: Team) -> None:
    """Rank 0's messages must be on the device of its collective; others are refused before anything is enqueued."""
    last = team.size - 1
    other = torch.device("chip", (team.device.index + 1) % torch.chip.device_count())
    total = team.on_device(values(team.rank, 7, torch.int64))
    dist.all_reduce(total, group=team.group)
    if team.rank == 0:
        mine = team.on_device(values(0, 7, torch.float32))
        wrong = mine.to(other)
        text = f"with rank {last} are on {team.device}, not on {other}; copy"
        raises(ValueError, text, lambda: dist.isend(wrong, team.ranks[last], team.group))
        dist.send(mine, team.ranks[last], team.group)
    elif team.rank == last:
        out = team.empty(7, torch.float32)
        dist.recv(out, team.ranks[0], team.group)
        team.equal(out, values(0, 7, torch.float32))


def messages_before_a_collective_on_another_device(team: Team) -> None:
    """Let rank 0 send before the first collective; the last rank may still choose its device after it."""
    last = team.size - 1
    other = torch.device("chip", (team.device.index + 1) % torch.chip.device_count())
    mine = team.on_device(values(0, 7, torch.float32))
    work = dist.isend(mine, team.ranks[last], team.group) if team.rank == 0 else None
    dist.all_reduce(team.on_device(values(team.rank, 7, torch.int64)), group=team.group)
    if team.rank == last:
        out = team.empty(7, torch.float32).to(other)
        for _ in range(2):
            dist.recv(out, team.ranks[0], team.group)
            team.equal(out, values(0, 7, torch.float32))
        text = f"with rank 0 are on {other}, not on {team.device}; copy"
        raises(ValueError, text, lambda: dist.irecv(mine, team.ranks[0], team.group))
    elif work is not None:
        dist.send(mine, team.ranks[last], team.group)
        work.wait()


def overlapping_splits(device: torch.device) -> None:
    """Split a group twice; not all ranks of the second part were in the first, so their group counts differ."""
    size = dist.get_world_size()
    parent = dist.new_group()
    assert isinstance(parent, dist.ProcessGroup)
    dist.all_reduce(torch.ones(3, device=device), group=parent)
    dist.split_group(parent, [list(range(size - 1))])
    part = dist.split_group(parent, [list(range(size))])
    assert part is not None
    for tensor in (torch.ones(3, device=device), torch.ones(3)):
        dist.all_reduce(tensor, group=part)
        assert tensor.tolist() == [size] * 3


def split(device: torch.device, has_met: bool) -> None:
    """The even ranks, and all but the last of the odd ones; the parent has met, or has not."""
    size, rank = dist.get_world_size(), dist.get_rank()
    parent = dist.new_group()
    assert isinstance(parent, dist.ProcessGroup)
    if has_met:
        dist.all_reduce(torch.ones(3, device=device), group=parent)
    parts = [list(range(0, size, 2)), list(range(1, max(2, size - 1), 2))]
    part = dist.split_group(parent, [ranks for ranks in parts if ranks])
    # Outside the parts: None, and since PyTorch 2.14 NON_GROUP_MEMBER.
    assert isinstance(part, dist.ProcessGroup) == any(rank in ranks for ranks in parts)
    if isinstance(part, dist.ProcessGroup):
        team = Team(part, device)
        assert team.ranks in parts
        reductions(team, "SUM", Op.SUM, torch.int32, 7)
        exchanges(team, torch.float32, 5003)
        messages(team, torch.float32, 7)
    total = torch.ones(3, device=device)
    dist.all_reduce(total, group=parent)
    Team(parent, device).equal(total, torch.full((3,), float(size)))


def new_groups(device: torch.device) -> Iterator[tuple[str, Callable[[], None]]]:
    """Cases by name."""
    if dist.get_world_size() == 1:
        return
    functions = [ring_of_messages, message_around_a_collective, tagged_messages, messages_on_another_device]
    if dist.get_world_size() > 2:
        functions.append(messages_before_a_collective_on_another_device)
    for function in functions:
        group = dist.new_group()
        assert isinstance(group, dist.ProcessGroup)
        team = Team(group, device)
        yield function.__name__, lambda f=function, t=team: f(t)
    for has_met in (False, True):
        yield f"split, met: {has_met}", lambda m=has_met: split(device, m)
    yield "overlapping splits", lambda: overlapping_splits(device)


@check
def matrix(rank: int, device: torch.device) -> None:
    """All cases over all ranks, over halves of them and alone."""
    every = [*new_groups(device)]
    every += [(f"{name}, {team.size} ranks", case) for team in teams(device) for name, case in cases(team)]
    wrong = {}
    for name, case in every:
        try:
            case()
        except AssertionError:
            wrong[name] = traceback.format_exc(limit=-1)
    dist.barrier()
    assert wrong == {}
    assert len(every) > 400
