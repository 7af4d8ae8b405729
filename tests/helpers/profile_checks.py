"""The rows of collectives in torch.profiler's trace; run_rank.py runs these."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import profile, record_function

from isthmus_diagnostics.profile import hot, trace
from tests.helpers.rank_checks import check, equal, numbers

FLOAT = 4  # bytes


def write_trace(prof: profile, folder: str) -> tuple[Path, list[dict[str, Any]]]:
    path = Path(folder) / "trace.json"
    prof.export_chrome_trace(str(path))
    return path, json.loads(path.read_text())["traceEvents"]


def events_of(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    found = [event for event in events if event.get("cat") == category]
    return sorted(found, key=lambda event: event["ts"])


@check
def collectives_are_rows(rank: int, device: torch.device) -> None:
    tensor = numbers(rank, device)
    gathered = torch.empty(8, device=device)
    part = torch.empty(2, device=device)
    with profile() as prof, tempfile.TemporaryDirectory() as folder:
        with record_function("step"):
            dist.all_gather_into_tensor(gathered, tensor)
            dist.reduce_scatter_tensor(part, tensor)
            dist.all_reduce(tensor)
        if rank == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor, 0)
        dist.barrier()
        prof.stop()
        path, events = write_trace(prof, folder)
        found = hot.analyse(trace.read(path))
    equal(tensor, [10.0, 12, 14, 16])
    rows = events_of(events, "kernel")
    by_driver = os.environ.get("ISTHMUS_COLLECTIVES") != "gloo"
    assert [(row["name"], row["args"]["bytes"]) for row in rows] == [
        ("chip:all_gather_into_tensor", 8 * FLOAT),
        ("chip:reduce_scatter_tensor", 4 * FLOAT),
        ("chip:all_reduce", 4 * FLOAT),
        ("chip:send" if rank == 0 else "chip:recv", 4 * FLOAT),
        *([("chip:barrier", 4)] if by_driver else []),
    ]
    rows = rows[:4]
    operators = {event["args"]["External id"]: event["name"] for event in events_of(events, "cpu_op")}
    calls = {call["args"]["correlation"]: call for call in events_of(events, "privateuse1_runtime")}
    for row in rows:
        assert (row["args"]["Group size"], row["args"]["dtype"], row["pid"]) == (2, "Float", rank), row
        assert operators[row["args"]["External id"]].startswith("c10d::"), row
        call = calls[row["args"]["correlation"]]
        assert call["name"] == "chipLaunchCollective" and call["ts"] <= row["ts"], call
    marks = [event for event in events_of(events, "gpu_user_annotation") if event["name"] == "step"]
    assert marks and marks[0]["ts"] <= rows[0]["ts"]
    assert {row["name"] for row in rows} == set(found.kernels) - {"chip:barrier"}
    assert found.calls["launch"].calls == 5  # the barrier's too
    assert found.calls["synchronize"].calls >= 4


@check
def collectives_that_overlap_have_rows_of_their_own(rank: int, device: torch.device) -> None:
    """The first receive matches the last send, so it is in flight during all of the second."""
    first, second = (torch.full((3,), float(i), device=device) for i in range(2))
    with profile() as prof, tempfile.TemporaryDirectory() as folder:
        exchange = dist.isend if rank == 0 else dist.irecv
        works = [exchange(first, 1 - rank, tag=1), exchange(second, 1 - rank, tag=2)]
        for work in reversed(works):
            work.wait()
        prof.stop()
        _, events = write_trace(prof, folder)
    one, two = events_of(events, "kernel")
    assert one["ts"] + one["dur"] >= two["ts"] + two["dur"]
    assert one["tid"] != two["tid"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [names[row["tid"]] for row in (one, two)] == ["collectives 0", "collectives 1"]


@check
def collective_that_outlasts_its_profile_has_no_row(rank: int, device: torch.device) -> None:
    tensor = numbers(rank, device)
    with profile() as prof, tempfile.TemporaryDirectory() as folder:
        work = dist.isend(tensor, 1) if rank == 0 else dist.irecv(tensor, 0)
        prof.stop()
        _, events = write_trace(prof, folder)
    assert not events_of(events, "kernel")
    with profile() as prof, tempfile.TemporaryDirectory() as folder:
        work.wait()
        prof.stop()
        _, events = write_trace(prof, folder)
    assert not events_of(events, "kernel")
