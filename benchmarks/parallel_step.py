"""One training step of a 4-layer LLaMA on two ranks (h 512, vocabulary 8192, 8 x 256 tokens in all, float32, AdamW).

Jobs: data parallel (DistributedDataParallel), sharded (FSDP2) and tensor parallel (DTensor). Peers, each two
processes of one thread that step in turn with the others: CPU tensors and gloo; the same with a malloc that keeps its
memory (glibc tunables); the host chip and its collectives; the same with the operators of isthmus.ops under the
model, as with `isthmus run --patch transformers`. Goal: the chip at most 0.8x of the first. The limit is a rank's
matrix products alone, on both ranks at the same time.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import train_step
from train_step import BATCH, KEEP_MEMORY, SEQUENCE, VOCABULARY
from workers import Worker

JOBS = ("data", "sharded", "tensor")
PEERS = {
    "cpu, gloo": ("cpu", "", {}),
    "cpu, gloo, malloc keeps memory": ("cpu", "", {"GLIBC_TUNABLES": KEEP_MEMORY}),
    "chip": ("chip", "", {}),
    "chip, operators": ("chip", "operators", {}),
    "limit": ("cpu", "limit", {}),
}
TOLERANCES = {"chip": 1e-6, "chip, operators": 1e-3}  # tolerances of the losses, relative to CPU's
GOAL, WORLD = 0.8, 2
UNFAIR = (
    "Gloo sends through the loopback device, as between machines; the chip shares memory. The chip caches its "
    "memory; plain malloc returns large blocks to the system and faults them in again: the second peer has that "
    "advantage too. Each rank has one of two cores, so gloo's threads, autograd and the streams of the "
    "chip compete with the step, on both sides. Denormals are flushed."
)


def worker(device: str, way: str, job: str, rank: int, store: str) -> None:
    """Run one rank: for every line read, do a step and print its seconds and loss."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if way == "operators":
        from isthmus import ops

        ops.patch("transformers")
    if device == "chip":
        torch.accelerator.set_device_index(rank)
    backend = "chip" if device == "chip" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=WORLD)
    step = products() if way == "limit" else training(device, job, rank)
    for _ in sys.stdin:
        dist.barrier()
        print(json.dumps(step()), flush=True)
    dist.destroy_process_group()


def products() -> Callable[[], tuple[float, float]]:
    """Make a function that times a rank's share of the step's matrix products, without attention's."""
    measure = train_step.limit()
    return lambda: (measure() / WORLD, 0.0)


def training(device: str, job: str, rank: int) -> Callable[[], tuple[float, float]]:
    """Make the step of a job, which returns its seconds and its loss."""
    import torch

    model = train_step.llama().to(device)
    model = {"data": data_parallel, "sharded": sharded, "tensor": tensor_parallel}[job](model, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=None if job != "tensor" else False)
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=torch.Generator().manual_seed(1))
    if job != "tensor":
        ids = ids[rank::WORLD]
    ids = ids.contiguous().to(device)

    def step() -> tuple[float, float]:
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        return time.perf_counter() - start, value

    return step


def data_parallel(model: Any, device: str) -> Any:
    """DistributedDataParallel: gradients are reduced in buckets during the backward pass."""
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def sharded(model: Any, device: str) -> Any:
    """FSDP2, a unit per layer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device, (WORLD,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(model: Any, device: str) -> Any:
    """Half of the heads and of the feed-forward width on each rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(device, (WORLD,))
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    for layer in model.model.layers:
        plan: dict[str, Any] = {name: ColwiseParallel() for name in columns}
        plan |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
        parallelize_module(layer, mesh, plan)
    return model


LOST = "parallel_step: rank {} exited early; see its error above"


class Ranks:
    """The processes of a peer, which step on request."""

    def __init__(self, name: str, job: str, folder: str) -> None:
        device, way, environment = PEERS[name]
        words = ["--worker", device, "--way", way, "--job", job]
        words += ["--store", f"{folder}/{name.replace(' ', '-')}"]
        settings = {**environment, "OMP_NUM_THREADS": "1", "ISTHMUS_HOST_DEVICES": str(WORLD)}
        self._workers = [
            Worker(__file__, LOST.format(rank), *words, "--rank", str(rank), **settings)
            for rank in range(WORLD)
        ]
        self.losses: list[float] = []

    def step(self) -> float:
        """Do a step; return the seconds of the slower rank."""
        for worker in self._workers:
            worker.ask("step")
        answers = [worker.answer() for worker in self._workers]
        self.losses.append(sum(loss for _, loss in answers) / WORLD)
        return float(max(seconds for seconds, _ in answers))

    def close(self) -> None:
        """Stop the processes."""
        for worker in self._workers:
            assert worker.process.stdin is not None
            worker.process.stdin.close()
        for worker in self._workers:
            worker.process.wait()


def measure(job: str, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of the result table for one job."""
    from harness import interleave, ratio

    with tempfile.TemporaryDirectory() as folder:
        peers = {name: Ranks(name, job, folder) for name in PEERS}
        times = interleave({name: peer.step for name, peer in peers.items()}, rounds=rounds, warm_up=8)
        for peer in peers.values():
            peer.close()
    for name, tolerance in TOLERANCES.items():
        check_losses(f"{job}, {name}", peers[name].losses, peers["cpu, gloo"].losses, tolerance)
    return [
        {
            "job": job,
            "peer": name,
            "step_ms": times[name].median * 1e3,
            "best_ms": times[name].best * 1e3,
            "chip_over_peer": ratio(times["chip"], times[name]),
            "operators_over_peer": ratio(times["chip, operators"], times[name]),
            "last_loss": peers[name].losses[-1],
        }
        for name in PEERS
    ]


def check_losses(name: str, losses: list[float], expected: list[float], tolerance: float) -> None:
    """Check that the chip's losses agree with those of CPU and gloo."""
    for step, (ours, theirs) in enumerate(zip(losses, expected, strict=True)):
        if abs(ours - theirs) > tolerance * theirs:
            raise SystemExit(f"parallel_step: {name}, step {step}: the loss is {ours}, on CPU {theirs}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds (default 9)")
    parser.add_argument("--job", choices=JOBS, help="run only this job; the result is not saved")
    for name in ("--worker", "--way", "--store"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.way, options.job, options.rank, options.store)
        return
    from harness import print_table, save

    rows = [row for job in (options.job,) if job for row in measure(job, options.rounds)]
    rows = rows or [row for job in JOBS for row in measure(job, options.rounds)]
    print_table(rows)
    for row in rows:
        if row["peer"] == "cpu, gloo":
            found = f"chip {row['chip_over_peer']:.3f}, with operators {row['operators_over_peer']:.3f}"
            print(f"{row['job']}: {found} of the time on CPU and gloo (goal at most {GOAL})")
    if not options.job:
        save("parallel_step", rows, unfair=UNFAIR, settings={"rounds": options.rounds, "ranks": WORLD})


if __name__ == "__main__":
    main()
