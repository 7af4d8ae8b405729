"""One training step of a 4-layer LLaMA (h 512, vocabulary 8192, batch 8 x 256, float32, default AdamW).

Peers, each in a process of its own, stepped in turn: native CPU eager; the same with a malloc that keeps its
memory (glibc tunables); torch.compile on CPU; the host chip; the host chip with the operators of isthmus.ops under
the model and the optimizer. Goals: the chip at most 0.82x of the first and 1.03x of the second; with the operators
0.75x and 0.9x, and 1.15x of the floor. The limit is the step's matrix products alone, at the GEMM rate
of this machine; the floor adds attention's products and the bytes that all other operators must move.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from workers import Worker

KEEP_MEMORY = (
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736:glibc.malloc.top_pad=1073741824"
)
PEERS = {
    "cpu": ("cpu", "", {}),
    "cpu, malloc keeps memory": ("cpu", "", {"GLIBC_TUNABLES": KEEP_MEMORY}),
    "cpu, torch.compile": ("cpu", "compile", {}),
    "chip": ("chip", "", {}),
    "chip, operators": ("chip", "operators", {}),
}
GOALS = {  # (ours, over which peer): at most
    ("chip", "cpu"): 0.82,
    ("chip", "cpu, malloc keeps memory"): 1.03,
    ("chip, operators", "cpu"): 0.75,
    ("chip, operators", "cpu, malloc keeps memory"): 0.9,
    ("chip, operators", "floor"): 1.15,
}
LAYERS, HIDDEN, INTERMEDIATE, VOCABULARY, BATCH, SEQUENCE = 4, 512, 1376, 8192, 8, 256
UNFAIR = (
    "The chip caches its memory; plain malloc returns large blocks to the system and faults them in again, which is "
    "most of what the first ratio shows. The second peer has the same advantage by glibc tunables: compare with it. "
    "Denormals make matrix products ten times slower: flushed on all sides."
)


def llama() -> Any:
    """Build the model on the CPU with the weights of seed 0."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=HIDDEN,
            intermediate_size=INTERMEDIATE,
            num_hidden_layers=LAYERS,
            num_attention_heads=8,
            num_key_value_heads=8,
            vocab_size=VOCABULARY,
            max_position_embeddings=SEQUENCE,
        )
    )


def worker(device: str, way: str) -> None:
    """Build the model; for every line read, do a step and print seconds, CPU seconds, loss and peak bytes."""
    import resource

    import torch

    torch.set_flush_denormal(True)
    model = llama().to(device)
    adamw: Any = torch.optim.AdamW
    if way == "operators":
        from isthmus import ops

        ops.patch("transformers")
        adamw = ops.AdamW
    optimizer = adamw(model.parameters(), lr=1e-4)
    forward = torch.compile(model) if way == "compile" else model
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE)).to(device)
    for _ in sys.stdin:
        start, busy = time.perf_counter(), time.process_time()
        loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        device_peak = torch.accelerator.max_memory_reserved() if device == "chip" else 0
        print(json.dumps([seconds, busy, value, peak, device_peak]), flush=True)


LOST = "train_step: a peer exited early with code {code}; see its error above"


class Peer(Worker):
    """A worker process that does a step on request."""

    def __init__(self, device: str, way: str, environment: dict[str, str]) -> None:
        super().__init__(__file__, LOST, "--worker", device, "--way", way, **environment)
        self.losses: list[float] = []
        self.busy: list[float] = []  # CPU seconds
        self.peak_bytes = self.device_bytes = 0

    def step(self) -> float:
        """Do a step and return its seconds."""
        self.ask("step")
        seconds, busy, loss, self.peak_bytes, self.device_bytes = self.answer()
        self.losses.append(loss)
        self.busy.append(busy)
        return float(seconds)


def limit(extra_flops: float = 0) -> Callable[[], float]:
    """Make a peer of matrix products only: 6 FLOPs per weight and token, at the rate of the output layer's product.

    Attention is excluded unless its FLOPs are given, so the result is below any implementation.
    """
    import torch

    a = torch.randn(BATCH * SEQUENCE, HIDDEN)
    b = torch.randn(HIDDEN, VOCABULARY)
    out = torch.empty(BATCH * SEQUENCE, VOCABULARY)
    weights = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * INTERMEDIATE) + HIDDEN * VOCABULARY
    repeat = (
        3 * weights / (HIDDEN * VOCABULARY)
    )  # the step's products, counted in products of the output layer
    repeat += extra_flops / (2 * BATCH * SEQUENCE * HIDDEN * VOCABULARY)

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(4):
            torch.mm(a, b, out=out)
        return (time.perf_counter() - start) / 4 * repeat

    return measure


def floor() -> Callable[[], float]:
    """Make a peer with the minimum work of any implementation: :func:`limit` with attention, and a copy of the bytes.

    Every operator except matrix products reads its inputs once and writes its outputs once, forward and backward.
    """
    import torch

    hidden, inner = (4 * BATCH * SEQUENCE * size for size in (HIDDEN, INTERMEDIATE))
    logits = 4 * BATCH * SEQUENCE * VOCABULARY
    embedding = 4 * VOCABULARY * HIDDEN
    weights = 4 * LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * INTERMEDIATE) + 2 * embedding
    moved = LAYERS * (2 * 8 + 8 + 12) * hidden  # two sums with norms, rotary of q and k, attention
    moved += LAYERS * 8 * inner  # SwiGLU
    moved += 5 * hidden + 3 * hidden + embedding  # the last norm, the embedding and its gradient
    moved += 3 * logits + 7 * weights  # cross entropy; AdamW
    pairs = LAYERS * BATCH * SEQUENCE**2 / 2 * HIDDEN  # causal; two products forward, five backward
    products = limit(7 * 2 * pairs)
    source = torch.zeros(2**28, dtype=torch.int8)
    target = torch.empty_like(source)

    def measure() -> float:
        taken = products()
        start = time.perf_counter()
        target.copy_(source)
        return taken + (time.perf_counter() - start) * moved / (2 * source.nbytes)

    return measure


def measure(rounds: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return the rows of the result table, and the ratios with goals."""
    from harness import interleave, ratio

    peers = {name: Peer(*setting) for name, setting in PEERS.items()}
    steps: dict[str, Callable[[], float]] = {name: peer.step for name, peer in peers.items()}
    times = interleave(steps | {"limit": limit(), "floor": floor()}, rounds=rounds, warm_up=3)
    for peer in peers.values():
        peer.close()
    check_losses({name: peer.losses for name, peer in peers.items()})
    rows = [
        {
            "peer": name,
            "step_ms": times[name].median * 1e3,
            "best_ms": times[name].best * 1e3,
            "chip_over_peer": ratio(times["chip"], times[name]),
            "operators_over_peer": ratio(times["chip, operators"], times[name]),
            "limit_over_peer": ratio(times["limit"], times[name]),
            "floor_over_peer": ratio(times["floor"], times[name]),
            "peak_process_MiB": round(peers[name].peak_bytes / 2**20),
            "peak_device_MiB": round(peers[name].device_bytes / 2**20),
        }
        for name in PEERS
    ]
    return rows, {f"{ours} / {other}": ratio(times[ours], times[other]) for ours, other in GOALS}


def check_losses(losses: dict[str, list[float]]) -> None:
    """Check that the chip's losses equal native CPU's bit for bit, and differ by rounding with the operators."""
    if losses["chip"] != losses["cpu"]:
        raise SystemExit("train_step: the chip's losses are not bit-equal to native CPU's")
    for step, (ours, theirs) in enumerate(zip(losses["chip, operators"], losses["cpu"], strict=True)):
        if abs(ours - theirs) > 1e-3 * theirs:
            raise SystemExit(
                f"train_step: step {step}: the loss is {ours} with the operators and {theirs} without"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds (default 9)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--way", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.way)
        return
    from harness import print_table, save

    rows, ratios = measure(options.rounds)
    print_table(rows)
    for (name, found), goal in zip(ratios.items(), GOALS.values(), strict=True):
        print(f"{name}: {found:.3f} (goal at most {goal})")
    save("train_step", rows, unfair=UNFAIR, settings={"rounds": options.rounds, "ratios": ratios})


if __name__ == "__main__":
    main()
