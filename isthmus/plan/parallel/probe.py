"""A cluster measured on this machine: ``python -m isthmus.plan.parallel.probe FILE`` on each rank."""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isthmus.plan.files import PlanError
from isthmus.plan.parallel import speed
from isthmus.plan.parallel.cluster import SENT, Cluster, Link

_PRODUCTS = {"float32": 1024, "bfloat16": 256}  # sides of matrices; a host may be slow with the latter
_SIZES = 1 << 16, 1 << 22  # bytes of the tensors whose times give latency and bandwidth


def measure(cards: int, progress: Callable[[str], None]) -> Cluster:
    """Measure the devices of this machine in jobs of 1, 2, 4 ... ranks.

    Args:
        cards: the most ranks.
        progress: told what is measured.

    Raises:
        PlanError: a job fails.
    """
    counts = sorted({1, cards, *(1 << each for each in range(1, cards.bit_length()))})
    with tempfile.TemporaryDirectory(prefix="isthmus-plan-") as folder:
        found = {}
        for count in counts:
            progress(f"measuring {count} of {cards} cards")
            found[count] = _job(count, Path(folder) / f"{count}.json")
    alone, together = found[1], found[counts[-1]]
    # Cards of one machine may share processors: all of them at once, over one alone.
    share = alone["time"] / together["time"]
    return Cluster(
        cards=cards,
        memory=int(alone["memory"]),
        flops=alone["flops"],
        bandwidth=alone["bandwidth"],
        overhead=alone["overhead"],
        links=[
            Link(n, link[0], link[1], name) for n in counts[1:] for name, link in found[n]["links"].items()
        ],
        cores=round(share * cards, 2) if share < 0.9 else 0.0,
    )


def _job(count: int, path: Path) -> dict[str, Any]:
    import subprocess

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    environment = {"OMP_NUM_THREADS": "1", "ISTHMUS_HOST_DEVICES": str(count), **os.environ}
    done = subprocess.run(
        [*command, "-m", "isthmus.plan.parallel.probe", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode or not path.exists():
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or [
            f"exit status {done.returncode}"
        ]
        raise PlanError(f"the measurement of {count} ranks failed: {lines[0].strip()}")
    return dict(json.loads(path.read_text()))


def _measure_rank(path: Path) -> None:
    import torch
    import torch.distributed as dist

    if not torch.accelerator.is_available():
        raise RuntimeError("no accelerator is available; isthmus doctor says why")
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    device = torch.accelerator.current_accelerator()
    assert device is not None
    dist.init_process_group(dist.get_default_backend_for_device(device.type))
    found: dict[str, Any] = {"memory": torch.accelerator.get_memory_info()[1], "flops": {}}
    for name, side in _PRODUCTS.items():
        matrix = torch.ones(side, side, device=device, dtype=getattr(torch, name))
        found["flops"][name] = 2 * side**3 / _time(lambda matrix=matrix: torch.mm(matrix, matrix))  # type: ignore[misc]
    matrix = torch.ones(1024, 1024, device=device)
    found["time"] = _time(lambda: [torch.mm(matrix, matrix) for _ in range(4)], until_all=True)
    source = torch.ones(1 << 22, device=device)
    found["bandwidth"] = 3 * source.nbytes / _time(lambda: source + source)
    found["overhead"] = _overhead(device)
    if dist.get_world_size() > 1:
        found["links"] = {name: _link(name, device) for name in SENT}
    if dist.get_rank() == 0:
        path.write_text(json.dumps(found))
    dist.destroy_process_group()


def _overhead(device: Any) -> float:
    """Return the seconds by which the host delays an operator: a layer of Megatron on tensors that take no time.

    Without megatron-core, that of plain modules, which have less Python around each operator.
    """
    try:
        importlib.import_module("isthmus.megatron")  # before Megatron
        from megatron.core import parallel_state
    except ImportError:
        import torch
        from torch import nn

        layers = nn.Sequential(*(each for _ in range(20) for each in (nn.Linear(4, 4), nn.SiLU()))).to(device)
        entry = torch.ones(4, 4, device=device)
        # Forward: two operators of a pair. Backward: two products, a sum, two accumulations, and SiLU's.
        return _time(lambda: layers(entry).sum().backward()) / (8 * 20)
    import torch
    from megatron.core.models.common.embeddings import RotaryEmbedding
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed
    from megatron.core.transformer import TransformerConfig, TransformerLayer

    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=1,
        hidden_size=64,
        num_attention_heads=4,
        normalization="RMSNorm",
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        bias_activation_fusion=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    spec = get_gpt_layer_local_spec(normalization="RMSNorm")
    layer = TransformerLayer(config, spec.submodules).to(device)
    rotary = RotaryEmbedding(16, 1.0)(16)
    hidden = torch.ones(16, 1, 64, device=device, requires_grad=True)
    seconds = _time(lambda: layer(hidden, None, rotary_pos_emb=rotary)[0].sum().backward())
    return seconds / sum(speed.OPERATORS)


def _link(name: str, device: Any) -> tuple[float, float]:
    """Return latency in seconds and bandwidth in bytes per second of a collective that follows a matrix product."""
    import torch
    import torch.distributed as dist

    ranks, rank = dist.get_world_size(), dist.get_rank()
    matrix = torch.ones(256, 256, device=device)
    times = []
    for size in _SIZES:
        whole = torch.ones(size // 4, device=device)
        part = torch.ones(size // 4 // ranks, device=device)
        other = torch.empty_like(whole)

        def exchange(whole: Any = whole, other: Any = other) -> None:
            operations = [
                dist.P2POp(dist.isend, whole, (rank + 1) % ranks),
                dist.P2POp(dist.irecv, other, (rank - 1) % ranks),
            ]
            for work in dist.batch_isend_irecv(operations):
                work.wait()

        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda whole=whole: dist.all_reduce(whole),  # type: ignore[misc]
            "all_gather": lambda whole=whole, part=part: dist.all_gather_into_tensor(whole, part),  # type: ignore[misc]
            "reduce_scatter": lambda whole=whole, part=part: dist.reduce_scatter_tensor(part, whole),  # type: ignore[misc]
            "all_to_all": lambda whole=whole, other=other: dist.all_to_all_single(other, whole),  # type: ignore[misc]
            "send": exchange,
        }
        times.append(_excess(matrix, calls[name]))
    slope = max(1e-12, (times[1] - times[0]) / (_SIZES[1] - _SIZES[0]))
    return max(1e-6, times[0] - slope * _SIZES[0]), SENT[name](ranks) / slope


def _excess(matrix: Any, call: Callable[[], Any], calls: int = 8) -> float:
    """Return the median seconds by which a call after a matrix product exceeds the product."""
    import torch

    found = []
    for _ in range(3):
        alone = _time(lambda: [torch.mm(matrix, matrix) for _ in range(calls)], 8, until_all=True)
        both = _time(lambda: [(torch.mm(matrix, matrix), call()) for _ in range(calls)], 8, until_all=True)
        found.append((both - alone) / calls)
    return max(1e-6, statistics.median(found))


def _time(call: Callable[[], Any], rounds: int = 15, *, until_all: bool = False) -> float:
    """Return the median seconds of a call while all ranks do the same, or until all have done it."""
    import torch
    import torch.distributed as dist

    times = []
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        call()
        torch.accelerator.synchronize()
        if until_all:
            dist.barrier()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


if __name__ == "__main__":
    _measure_rank(Path(sys.argv[1]))
