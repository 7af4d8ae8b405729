"""Predictions of `isthmus plan parallel` beside real training of megatron-core on 1, 2 and 4 host devices.

The cluster is what `--measure` finds on this machine; nothing else is fitted. Each layout is trained with the options
that `--emit megatron` prints. Goals: every peak of the allocator within 5 % of the prediction; Kendall's tau between
predicted and measured step times at least 0.8.

With --part, one part runs and its figures are kept in build/plan_parallel; without it, all parts that are not there.
"""

import argparse
import gc
import itertools
import json
import os
import shlex
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from isthmus_common.files import write_file

ROOT = Path(__file__).parents[1]
PARTS = ROOT / "build" / "plan_parallel"
STEPS, WARM_UP = 3, 1
GLOBAL_BATCH = 8
MODEL = (
    "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --num-query-groups 4 --seq-length 128 "
    "--vocab-size 4096 --untie-embeddings-and-output-weights"
)
MODELS = {
    "dense": f"{MODEL} --ffn-hidden-size 1408",
    "experts": f"{MODEL} --ffn-hidden-size 704 --num-experts 4 --moe-router-topk 2",
    # Kept apart: nothing in the prediction is chosen by these.
    "unseen": (
        "--num-layers 4 --hidden-size 384 --num-attention-heads 8 --num-query-groups 8 --seq-length 192 "
        "--vocab-size 2048 --untie-embeddings-and-output-weights --ffn-hidden-size 1536"
    ),
}
# TP, PP, VPP, CP, EP, DP, micro-batch, recompute
LAYOUTS = {
    "dense": (
        (1, 1, 1, 1, 1, 1, 1, "none"),
        (1, 1, 1, 1, 1, 1, 4, "none"),
        (1, 1, 1, 1, 1, 1, 8, "full"),
        (2, 1, 1, 1, 1, 1, 2, "none"),
        (2, 1, 1, 1, 1, 1, 8, "full"),
        (1, 2, 1, 1, 1, 1, 1, "none"),
        (1, 2, 1, 1, 1, 1, 4, "none"),
        (1, 2, 2, 1, 1, 1, 1, "none"),
        (1, 1, 1, 2, 1, 1, 2, "none"),
        (1, 1, 1, 1, 1, 2, 2, "none"),
        (1, 1, 1, 1, 1, 2, 4, "full"),
        (4, 1, 1, 1, 1, 1, 2, "none"),
        (2, 2, 1, 1, 1, 1, 2, "none"),
        (1, 4, 1, 1, 1, 1, 1, "none"),
        (1, 2, 2, 1, 1, 2, 1, "full"),
        (2, 1, 1, 2, 1, 1, 2, "none"),
        (1, 1, 1, 1, 1, 4, 2, "none"),
    ),
    "experts": (
        (1, 1, 1, 1, 1, 1, 2, "none"),
        (1, 1, 1, 1, 1, 2, 2, "none"),
        (1, 1, 1, 1, 2, 2, 2, "none"),
        (1, 2, 1, 1, 1, 1, 2, "none"),
        (2, 1, 1, 1, 1, 1, 2, "full"),
        (1, 1, 1, 1, 4, 4, 1, "none"),
    ),
    "unseen": (
        (1, 1, 1, 1, 1, 1, 2, "none"),
        (1, 1, 1, 1, 1, 1, 1, "full"),
        (2, 1, 1, 1, 1, 1, 4, "none"),
        (1, 2, 1, 1, 1, 1, 2, "none"),
        (1, 1, 1, 2, 1, 1, 1, "none"),
        (1, 1, 1, 1, 1, 2, 1, "none"),
        (4, 1, 1, 1, 1, 1, 4, "full"),
        (2, 1, 1, 1, 1, 2, 1, "none"),
        (2, 2, 1, 1, 1, 1, 1, "none"),
        (1, 2, 2, 1, 1, 2, 2, "none"),
        (1, 1, 1, 2, 1, 2, 4, "none"),
        (1, 1, 1, 1, 1, 4, 1, "none"),
    ),
}
RANKS = 4
UNFAIR = (
    "Ranks share two cores and their bandwidth: the cluster says how many cards compute at full speed at once. "
    "Experts are taken to have equal numbers of tokens, which a new router does not give them. The dataset is "
    "made on the host. Denormals are flushed."
)


def train(jobs: list[str]) -> None:
    """Train a few steps in each job, its number of ranks and command line, and print what the ranks measure."""
    import isthmus.megatron  # noqa: F401 - must come first

    # isort: split
    sys.path.insert(0, str(ROOT / "examples"))
    import pretrain_gpt_core as example
    import torch

    settings = example.transformer_config

    def as_pretrain_gpt(args: argparse.Namespace) -> Any:
        config = settings(args)
        config.bias_activation_fusion = True  # Megatron-LM's defaults
        config.deallocate_pipeline_outputs = True
        return config

    example.transformer_config = as_pretrain_gpt
    torch.set_flush_denormal(True)
    gc.collect()
    gc.freeze()  # a collection would copy all of these objects in each child, while other ranks wait
    for job in jobs:
        ranks, line = int(job.split()[0]), job.partition(" ")[2]
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = str(free.getsockname()[1])
        children = []
        for rank in range(ranks):
            if (child := os.fork()) == 0:
                named = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks}
                os.environ |= {name: str(value) for name, value in named.items()}
                os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
                status = 1
                try:
                    train_rank(example, line)
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            children.append(child)
        if any(os.waitpid(child, 0)[1] for child in children):
            sys.exit(1)


def train_rank(example: Any, line: str) -> None:
    """Train a few steps; rank 0 prints the peaks of all ranks in bytes, and the seconds of the fastest step."""
    import torch
    import torch.distributed as dist
    from gpt_core.flags import parse_args

    args = parse_args(shlex.split(line))
    example.start_process_group()
    step = example.trainer(args)
    seconds = []
    for iteration in range(STEPS):
        dist.barrier()
        start = time.perf_counter()
        step(iteration)
        torch.accelerator.synchronize()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    peaks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(peaks, torch.accelerator.max_memory_allocated())
    if dist.get_rank() == 0:
        print(json.dumps({"peaks": peaks, "seconds": min(seconds[WARM_UP:])}), flush=True)
    dist.barrier()


def run(jobs: list[str]) -> list[dict[str, Any]]:
    """Train in each job; return what was measured."""
    done = subprocess.run(
        [sys.executable, __file__, "--train", *jobs],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "ISTHMUS_HOST_DEVICES": str(RANKS), "PYTHONWARNINGS": "ignore"},
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(found) != len(jobs):
        raise SystemExit(f"plan_parallel: job {len(found) + 1} failed; see the error above")
    return found


def predict(name: str, cells: tuple[Any, ...], cluster: Any) -> Any:
    """Return the model and the layout with its prediction."""
    from isthmus_diagnostics.plan.parallel import memory, model, speed
    from isthmus_diagnostics.plan.parallel.layouts import Layout, problem
    from isthmus_diagnostics.plan.parallel.report import Candidate

    shape = model.megatron(MODELS[name])
    layout = Layout(*cells[:-1], GLOBAL_BATCH, cells[-1])
    if reason := problem(shape, layout):
        raise SystemExit(f"plan_parallel: {cells}: {reason}")
    return shape, Candidate(layout, memory.peak(shape, layout), speed.step(shape, layout, cluster))


def measure(name: str, cluster: Any) -> list[dict[str, Any]]:
    """Train the layouts of a model; return their measurements."""
    from isthmus_diagnostics.plan.parallel import emit

    jobs = []
    for cells in LAYOUTS[name]:
        shape, candidate = predict(name, cells, cluster)
        flags = emit.emit("megatron", shape, candidate.layout)
        jobs.append(f"{candidate.layout.cards} {MODELS[name]} --train-iters {STEPS} {flags}")
    return [
        {"model": name, "cells": cells, **found}
        for cells, found in zip(LAYOUTS[name], run(jobs), strict=True)
    ]


def fastest(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the measurements of layouts with the shorter times of those before."""
    known = {tuple(each["cells"]): each["seconds"] for each in before}
    return [each | {"seconds": min(each["seconds"], known.get(tuple(each["cells"]), 1e9))} for each in now]


def row(measured: dict[str, Any], cluster: Any) -> dict[str, Any]:
    """Return a row of the result table."""
    _, candidate = predict(measured["model"], tuple(measured["cells"]), cluster)
    layout, peak = candidate.layout, max(measured["peaks"])
    return {
        "model": measured["model"],
        **{size: getattr(layout, size) for size in ("tp", "pp", "vpp", "cp", "ep", "dp")},
        "micro": layout.micro_batch,
        "recompute": layout.recompute,
        "predicted MiB": round(candidate.memory.total / (1 << 20), 1),
        "measured MiB": round(peak / (1 << 20), 1),
        "memory error": candidate.memory.total / peak - 1,
        "predicted ms": candidate.seconds * 1e3,
        "measured ms": measured["seconds"] * 1e3,
        "time ratio": candidate.seconds / measured["seconds"],
    }


def kendall(pairs: list[tuple[float, float]]) -> float:
    """Return Kendall's tau of pairs without ties (Kendall, 1938)."""
    signs = [1 if (a[0] - b[0]) * (a[1] - b[1]) > 0 else -1 for a, b in itertools.combinations(pairs, 2)]
    return sum(signs) / len(signs)


def main() -> None:
    parts = ["cluster", *LAYOUTS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=parts, help="run this part only; the result is not saved")
    parser.add_argument("--again", action="store_true", help="run parts again; the fastest steps count")
    parser.add_argument("--train", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train)
        return
    from harness import print_table, save

    from isthmus_diagnostics.plan.parallel import cluster as clusters
    from isthmus_diagnostics.plan.parallel import probe

    # Compilation takes longer than the steps.
    os.environ |= {"OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1"}
    PARTS.mkdir(mode=0o750, parents=True, exist_ok=True)
    path = PARTS / "cluster.toml"
    asked = [options.part] if options.part else parts
    if "cluster" in asked and (options.again or not path.exists()):
        clusters.write(path, probe.measure(RANKS, print))
    cluster = clusters.read(path)
    measured = []
    for part in asked:
        kept = PARTS / f"{part}.json"
        if part == "cluster":
            continue
        found = json.loads(kept.read_text()) if kept.exists() else []
        if options.again or not found:
            found = fastest(found, measure(part, cluster))
            write_file(kept, json.dumps(found).encode())
        measured += found
    if not measured:
        return
    rows = [row(each, cluster) for each in measured]
    print_table(rows)
    worst = max(abs(each["memory error"]) for each in rows)
    summary: dict[str, Any] = {"largest memory error": worst}
    for name in LAYOUTS:
        pairs = [(each["predicted ms"], each["measured ms"]) for each in rows if each["model"] == name]
        if len(pairs) > 1:
            summary[f"Kendall, {name}"] = kendall(pairs)
    print(", ".join(f"{name} {value:.3f}" for name, value in summary.items()), "(goals: 0.05, 0.8)")
    if not options.part:
        settings = {"steps": STEPS, "global batch": GLOBAL_BATCH, "cluster": path.read_text(), **summary}
        save("plan_parallel", rows, unfair=UNFAIR, settings=settings)


if __name__ == "__main__":
    main()
