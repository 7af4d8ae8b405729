"""A cluster measured on this machine: ``python -m isthmus_diagnostics.plan.parallel.probe FILE`` on each rank."""

from __future__ import annotations

import gc
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

from isthmus_diagnostics.plan.files import PlanError
from isthmus_diagnostics.plan.parallel.cluster import SENT, Cluster, Link

_PRODUCTS = {"float32": 1024, "bfloat16": 256}  # sides of matrices; a host may be slow with the latter
_SIZES = 1 << 16, 1 << 22  # bytes of the tensors whose times give latency and bandwidth
_LAYERS = 4  # forward and backward passes of a layer in one measurement


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
    alone, share = found[1], found[counts[-1]]["share"]
    cores = share * cards if share < 0.9 else 0.0
    overhead = {f"{name}1": seconds for name, seconds in alone["overhead"].items()}
    for count in counts[1:]:
        # Ranks that take turns on a processor need less by their number on it.
        turns = max(1.0, count / cores) if cores else 1.0
        overhead |= {f"{name}{count}": seconds / turns for name, seconds in found[count]["overhead"].items()}
    return Cluster(
        cards=cards,
        memory=int(alone["memory"]),
        flops=alone["flops"],
        bandwidth=alone["bandwidth"],
        overhead=overhead,
        links=[
            Link(n, link[0], link[1], name) for n in counts[1:] for name, link in found[n]["links"].items()
        ],
        cores=round(cores, 2),
    )


def _job(count: int, path: Path) -> dict[str, Any]:
    import subprocess

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    environment = {"OMP_NUM_THREADS": "1", "ISTHMUS_HOST_DEVICES": str(count), **os.environ}
    done = subprocess.run(
        [*command, "-m", "isthmus_diagnostics.plan.parallel.probe", str(path)],
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
    try:
        importlib.import_module("isthmus.megatron")  # before Megatron
        importlib.import_module("megatron.core")
        megatron = True
    except ImportError:
        megatron = False
    gc.freeze()  # a collection on one rank delays all
    dist.init_process_group(dist.get_default_backend_for_device(device.type))
    ranks = dist.get_world_size()
    found: dict[str, Any] = {"memory": torch.accelerator.get_memory_info()[1]}
    if ranks == 1:
        found["flops"] = {name: _rate(getattr(torch, name), side, device) for name, side in _PRODUCTS.items()}
        found["bandwidth"] = _bandwidth(device)
    else:
        found["links"] = {name: _link(name, device) for name in SENT}
        found["share"] = _share(device)
    found["overhead"] = _overheads(ranks) if megatron else {}
    if dist.get_rank() == 0:
        path.write_text(json.dumps(found))
    dist.destroy_process_group()


def _rate(dtype: Any, side: int, device: Any) -> float:
    import torch

    matrix = torch.ones(side, side, device=device, dtype=dtype)
    return 2 * side**3 / _time(lambda: torch.mm(matrix, matrix))


def _share(device: Any) -> float:
    """Return the seconds that a step on one card takes, over those on all cards at once, which may share processors.

    The weights and gradients, of 90 MiB, are in no cache, as those of a job.
    """
    import torch
    import torch.distributed as dist
    from torch import nn

    pairs = [(nn.Linear(512, 1408), nn.SiLU(), nn.Linear(1408, 512)) for _ in range(8)]
    network = nn.Sequential(*(each for pair in pairs for each in pair)).to(device)
    entry = torch.ones(256, 512, device=device)

    def passes() -> None:
        network(entry).sum().backward()

    alone = _time(passes if dist.get_rank() == 0 else lambda: None, until_all=True)
    return alone / _time(passes, until_all=True)


def _bandwidth(device: Any) -> float:
    """Return the bytes per second that the operators of a SwiGLU, forward and backward, read and write."""
    import torch

    halves = torch.ones(512, 2048, device=device, requires_grad=True)

    def passes() -> None:
        gate, up = halves.chunk(2, -1)
        (torch.nn.functional.silu(gate) * up).sum().backward()

    # Forward: 2 for SiLU, 3 for the product. Backward: 2 products and SiLU's with 3 each, 4 to join the halves, and 2
    # to expand and to sum.
    return 20 * 512 * 1024 * 4 / _time(passes)


def _overheads(ranks: int) -> dict[str, float]:
    """Return the seconds of the host for layers of Megatron, or those that parallelism over all ranks adds."""
    dense, two = _layer(), _layer(experts=2)
    if ranks == 1:
        each = (_layer(experts=4) - two) / 2
        return {"dense": dense, "experts": two - 2 * each, "expert": each}
    return {
        "TP": _layer(tp=ranks) - dense,
        "CP": _layer(cp=ranks) - dense,
        "experts_TP": _layer(tp=ranks, experts=2) - two,
        "EP": _layer(ep=ranks, experts=2 * ranks) - two,
    }


def _layer(tp: int = 1, cp: int = 1, ep: int = 1, experts: int = 0) -> float:
    """Return the seconds of a layer, forward and backward, on tensors that take no time, until all ranks are done."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.common.embeddings import RotaryEmbedding
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed
    from megatron.core.transformer import TransformerConfig, TransformerLayer

    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        tp, context_parallel_size=cp, expert_model_parallel_size=ep, create_gloo_process_groups=False
    )
    model_parallel_cuda_manual_seed(1)
    settings: dict[str, Any] = {"cp_comm_type": "p2p"} if cp > 1 else {}
    if experts:
        settings |= {"num_moe_experts": experts, "moe_token_dispatcher_type": "alltoall"}
        settings |= {"moe_router_load_balancing_type": "none", "moe_aux_loss_coeff": 0.0}
    config = TransformerConfig(
        num_layers=1,
        hidden_size=64,
        num_attention_heads=8,
        tensor_model_parallel_size=tp,
        context_parallel_size=cp,
        expert_model_parallel_size=ep,
        sequence_parallel=tp > 1,
        normalization="RMSNorm",
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        bias_activation_fusion=False,
        gradient_accumulation_fusion=True,
        apply_rope_fusion=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        **settings,
    )
    spec = get_gpt_layer_local_spec(
        num_experts=experts or None, moe_grouped_gemm=False, normalization="RMSNorm"
    )
    layer = TransformerLayer(config, spec.submodules).cuda()
    reduction = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True)
    replica = DistributedDataParallel(config, reduction, layer)
    rotary = RotaryEmbedding(8, 1.0)(16 * tp * cp)
    hidden = torch.randn(16, 1, config.hidden_size, device="cuda", requires_grad=True)

    def passes() -> None:
        with replica.no_sync():
            for _ in range(_LAYERS):
                replica(hidden, None, rotary_pos_emb=rotary)[0].sum().backward()

    return _time(passes, until_all=True) / _LAYERS


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


def _time(call: Callable[[], Any], rounds: int = 9, *, until_all: bool = False) -> float:
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
