"""Saving and resharding a training state with `isthmus_formats.checkpoint.storage`, over PyTorch's own; conversion.

State: a LLaMA of 8 layers (h 1024, bfloat16) with the two moments of Adam (float32), 1.7 GB, sharded over two ranks
by its first dimension as FSDP does. It is saved, then loaded whole by each rank, and by its second dimension, as
tensor parallelism would.
Goals: save at least 2x, load at least 1.5x as fast. Limits: the disk alone, and a copy of the same bytes in memory.
A conversion of 4 GB to Megatron's files must stay within 1 GB of memory.
"""

import argparse
import json
import mmap
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from harness import interleave, print_table, ratio, save
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save as save_state
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.multiprocessing.spawn import spawn

from isthmus_formats.checkpoint.architectures import model
from isthmus_formats.checkpoint.containers import safetensors_file
from isthmus_formats.checkpoint.formats import find_format
from isthmus_formats.checkpoint.layout import Layout
from isthmus_formats.checkpoint.storage import Reader, Writer

WORLD = 2
LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "vocab_size": 32000,
}
LARGE = LLAMA | {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 38}
UNFAIR = (
    "PyTorch's writer leaves its files in the page cache, ours does not: hence both read the files that PyTorch "
    "wrote, once from the page cache and once from the disk (posix_fadvise DONTNEED). Both end a save when the data "
    "is on the disk (fsync). Every rank has one core. The limits are of both ranks at once: the disk written past "
    "the page cache, read through it; memory copied from a source that is not in the processor's cache."
)


def state(mesh: DeviceMesh, place: Placement) -> Iterator[tuple[str, DTensor]]:
    """Return the local part of each parameter and moment; their values tell their places."""
    for each in model(LLAMA).parameters:
        if len(each.shape) < 2:
            continue
        whole = torch.arange(each.shape[0] * each.shape[1]).remainder_(9973).view(each.shape)
        if isinstance(place, Shard):
            whole = whole.chunk(WORLD, place.dim)[mesh.get_local_rank()]
        for part, dtype in (
            ("weight", torch.bfloat16),
            ("exp_avg", torch.float32),
            ("exp_avg_sq", torch.float32),
        ):
            local = whole.to(dtype).contiguous()
            yield f"{part}.{each.name}", DTensor.from_local(local, mesh, [place], run_check=False)


def together(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> Callable[[], float]:
    """Make a peer that returns the seconds of the slower rank."""

    def measure() -> float:
        before()
        dist.barrier()
        start = time.perf_counter()
        work()
        taken = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        return float(taken)

    return measure


def forget(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_raw(path: Path, count: int) -> None:
    """Write bytes past the page cache: what the disk can do."""
    block = mmap.mmap(-1, 16 << 20)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT, 0o640)
    for _ in range(0, count, len(block)):
        os.write(file, block)
    os.fsync(file)
    os.close(file)


def read_raw(path: Path) -> None:
    """Read a file in large blocks."""
    block = bytearray(16 << 20)
    with path.open("rb", buffering=0) as stream:
        while stream.readinto(block):
            pass


def worker(rank: int, folder: Path, rounds: int) -> None:
    """Run one rank; the first one prints and saves the results."""
    warnings.filterwarnings("ignore", module="torch")
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (WORLD,))
    rows = saving(mesh, folder, rounds)
    rows += loading(mesh, Replicate(), "whole", folder, rounds)
    rows += loading(mesh, Shard(1), "the second dimension", folder, rounds)
    dist.destroy_process_group()
    if rank == 0:
        (folder / "rows.json").write_text(json.dumps(rows))


def saving(mesh: DeviceMesh, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of saving."""
    kept = dict(state(mesh, Shard(0)))
    count = sum(each.to_local().nbytes for each in kept.values())
    rank = dist.get_rank()

    def saver(name: str, writer: Callable[[Path], Any]) -> Callable[[], float]:
        def clear() -> None:
            if rank == 0:
                shutil.rmtree(folder / name, ignore_errors=True)

        return together(lambda: save_state(kept, storage_writer=writer(folder / name)), clear)

    peers = {"ours": saver("ours", Writer), "pytorch": saver("pytorch", FileSystemWriter)}
    peers["limit"] = together(lambda: write_raw(folder / f"raw{rank}", count))
    return [row("save", interleave(peers, rounds=rounds, warm_up=1), count * WORLD, "disk")]


def loading(mesh: DeviceMesh, place: Placement, name: str, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of loading by a placement, from memory and from the disk."""
    loaded = dict(state(mesh, place))
    count = sum(each.to_local().nbytes for each in loaded.values())
    stored = folder / "pytorch"

    def loader(reader: Callable[[Path], Any], before: Callable[[], None]) -> Callable[[], float]:
        return together(lambda: load(loaded, storage_reader=reader(stored)), before)

    def check() -> None:
        for key, expected in state(mesh, place):
            if not torch.equal(loaded[key].to_local(), expected.to_local()):
                raise SystemExit(f"checkpoint: other values of {key} are loaded")

    source, target = (torch.ones(count, dtype=torch.uint8) for _ in range(2))
    limits = {
        "memory": (lambda: None, lambda: target.copy_(source)),
        "disk": (lambda: forget(stored), lambda: read_raw(stored / f"__{dist.get_rank()}_0.distcp")),
    }
    rows = []
    for where, (before, limit) in limits.items():
        peers = {"ours": loader(Reader, before), "pytorch": loader(FileSystemReader, before)}
        for measure in peers.values():
            for each in loaded.values():
                each.to_local().zero_()
            measure()
            check()
        timings = interleave(peers | {"limit": together(limit, before)}, rounds=rounds, warm_up=1)
        rows.append(row(f"load {name}", timings, count * WORLD, where))
    return rows


def row(job: str, timings: dict[str, Any], count: int, limit: str) -> dict[str, Any]:
    """Return a row of the result table."""
    return {
        "job": job,
        "GB": count / 1e9,
        "GB/s": count / timings["ours"].median / 1e9,
        "pytorch_GB/s": count / timings["pytorch"].median / 1e9,
        "pytorch_over_ours": ratio(timings["pytorch"], timings["ours"]),
        "limit": limit,
        "limit_GB/s": count / timings["limit"].median / 1e9,
        "share_of_limit": ratio(timings["limit"], timings["ours"]),
    }


def conversion(folder: Path) -> dict[str, Any]:
    """Convert a checkpoint to Megatron's files and return its rate and its memory."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LARGE))
    pieces = find_format("huggingface").pieces(model(LARGE), Layout())
    shapes = {each.key: (torch.bfloat16, each.shape) for each in pieces}
    tensors = safetensors_file.create(folder / "model.safetensors", shapes)
    for each in tensors.values():
        each.write(torch.ones(each.shape, dtype=each.dtype))
    count = sum(each.bytes for each in tensors.values())
    target = folder.with_suffix(".megatron")
    command = ["-m", "isthmus", "checkpoint", "convert", folder, target, "--to", "megatron", "--tp", "2"]
    start = time.perf_counter()
    subprocess.run([sys.executable, *map(str, command)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {"GB": count / 1e9, "seconds": seconds, "GB/s": count / seconds / 1e9, "peak_MB": peak / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds (default 7)")
    parser.add_argument(
        "--folder", type=Path, help="where to write 13 GB (default the system's temporary folder)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        converted = conversion(folder / "llama")
        shutil.rmtree(folder / "llama.megatron")
        spawn(worker, (folder, options.rounds), nprocs=WORLD)
        rows = json.loads((folder / "rows.json").read_text())
    print_table(rows)
    print_table([converted])
    settings = {"rounds": options.rounds, "ranks": WORLD, "conversion": converted}
    print(save("checkpoint", rows, unfair=UNFAIR, settings=settings))


if __name__ == "__main__":
    main()
