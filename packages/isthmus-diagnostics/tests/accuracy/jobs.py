"""Jobs of several ranks, right and with a fault.

``python -m tests.accuracy.jobs RANK RANKS STORE FOLDER KIND NAME...`` dumps the named ones, each into a folder.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import isthmus_diagnostics.accuracy
from isthmus_diagnostics.accuracy.comparing import Comparison, compare
from tests.helpers.children import finish, start_module


class Job(NamedTuple):
    """A job.

    Attributes:
        train: does it, in each rank.
        ranks: how many.
        right: name of the right job that it is compared with; "" if this is a right one.
        calls: operators that may be named against it.
        module: the end of the name of the module that may be named; None: any.
        one: name of the right job of one rank; "" if the two are not compared.
        against_one: operators that may be named against that; "" if none may.
    """

    train: Callable[[], Any]
    ranks: int
    right: str = ""
    calls: str = ""
    module: str | None = None
    one: str = ""
    against_one: str = ""


JOBS: dict[str, Job] = {}


def all_jobs() -> dict[str, Job]:
    """Return the jobs of all files."""
    for name in ("parallel", "parallel_torch", "parallel_megatron"):
        importlib.import_module(f"tests.accuracy.{name}")
    return JOBS


def run(folder: Path, kind: str, names: Iterable[str]) -> None:
    """Dump jobs by name; those of as many ranks share processes."""
    groups: dict[tuple[int, bool], list[str]] = {}
    for name in names:
        groups.setdefault((all_jobs()[name].ranks, name.startswith("megatron")), []).append(name)
    for (ranks, is_megatron), group in groups.items():
        if ranks == 1 and not is_megatron:
            for name in group:
                with isthmus_diagnostics.accuracy.dump(folder / name, kind):
                    JOBS[name].train()
            continue
        command = [str(ranks), str(folder / f"store-{ranks}-{is_megatron}"), str(folder), kind, *group]
        started = [
            start_module("tests.accuracy.jobs", str(rank), *command, ISTHMUS_HOST_DEVICES=str(ranks))
            for rank in range(ranks)
        ]
        errors = [error for _, error in finish(started, 600)]
        if any(each.returncode for each in started):
            raise RuntimeError(f"ranks of {group} failed:\n" + "\n".join(errors))


def packet(operator: str) -> str:
    """Return the base of an operator's name: ``aten::add.Tensor`` is ``add``."""
    return operator.partition("::")[2].partition(".")[0]


def is_named(found: Comparison, calls: str, module: str | None) -> bool:
    """Return whether a comparison names one of these operators in that module; if there are none, nothing."""
    if found.guilty is None or not calls:
        return found.guilty is None and not calls
    call = found.guilty.call
    return packet(call.operator) in calls.split() and (module is None or call.place.module.endswith(module))


def judged(folder: Path, name: str) -> Iterator[tuple[str, Comparison, bool]]:
    """Compare a dump of a job with those that it belongs to: their names, the results, whether they are right."""
    job = JOBS[name]
    if job.right:
        found = compare(folder / job.right, folder / name)
        yield job.right, found, is_named(found, job.calls, job.module)
    if job.one and (job.against_one or not job.right):
        found = compare(folder / job.one, folder / name)
        yield job.one, found, is_named(found, job.against_one, None)


def main() -> None:
    rank, ranks, store, folder, kind, *names = sys.argv[1:]
    torch.set_num_threads(1)
    is_megatron = names[0].startswith("megatron")
    if is_megatron:
        importlib.import_module("isthmus.megatron")
        torch.cuda.set_device(int(rank))
    dist.init_process_group(
        "nccl" if is_megatron else "gloo",
        init_method=f"file://{store}",
        rank=int(rank),
        world_size=int(ranks),
    )
    made = all_jobs()  # keeps what importing them computes out of the first dump
    for name in names:
        with isthmus_diagnostics.accuracy.dump(Path(folder) / name, kind):
            made[name].train()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    # The files of the jobs import this one by its name.
    importlib.import_module("tests.accuracy.jobs").main()
