"""Replay of a graph on the host chip: one-element operators against their kernels, decoding against eager.

Goals: a replay of 1,000 operators costs at most 0.15 us each beyond their kernels; a decoding step of a small LLaMA
takes at most 0.6x of eager. The kernels are CPU's, called in C++ without the dispatcher.
"""

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from harness import difference, interleave, print_table, ratio, save
from torch.utils.cpp_extension import include_paths, library_paths

UNFAIR = (
    "Unequal thread counts or a changing CPU clock: hence one thread, and all peers timed in every round. Kernels "
    "that allocate take memory from a list of addresses in the replay, and from PyTorch's CPU allocator in the peer."
)
OPERATORS = 1000


def once(
    function: Callable[[], object], repeat: int, parts: int = 1, before: Callable[[], object] = lambda: None
) -> Callable[[], float]:
    """Make a peer that returns seconds per part of a call, without the time of ``before()``."""

    def measure() -> float:
        before()
        start = time.perf_counter()
        for _ in range(repeat):
            function()
        return (time.perf_counter() - start) / repeat / parts

    return measure


def capture(function: Callable[[], object]) -> torch.chip.Graph:
    """Return a graph of the function, after one run of it."""
    with torch.chip.stream(torch.chip.Stream()):
        function()
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        function()
    return graph


# Operator -> its call on one element.
CALLS: dict[str, Callable[[torch.Tensor], object]] = {
    "add": lambda x: torch.add(x, x),
    "add.out": lambda x: torch.add(x, x, out=x),
    "mul_": lambda x: x.mul_(x),
    "mm": lambda x: torch.mm(x, x),
    "softmax": lambda x: torch.softmax(x, 1),
}


def kernels(folder: str) -> Callable[[str, int], float]:
    """Compile graph_replay.cpp; return its function: (operator, calls) -> seconds per call of CPU's kernel."""
    library = Path(folder) / "libkernels.so"
    source = Path(__file__).with_suffix(".cpp")
    includes = [flag for path in include_paths() for flag in ("-isystem", path)]
    folders = [flag for path in library_paths() for flag in (f"-L{path}", f"-Wl,-rpath,{path}")]
    command = [
        "g++",
        "-std=c++20",
        "-O2",
        "-fPIC",
        "-shared",
        *includes,
        str(source),
        "-o",
        str(library),
        *folders,
    ]
    subprocess.run([*command, "-lc10", "-ltorch", "-ltorch_cpu"], check=True)
    function = ctypes.CDLL(str(library)).seconds_per_call
    function.restype, function.argtypes = ctypes.c_double, (ctypes.c_char_p, ctypes.c_int64)
    return lambda name, calls: function(name.encode(), calls)


def operators(kernel: Callable[[str, int], float], rounds: int, repeat: int) -> list[dict[str, object]]:
    """Time each operator: kernels alone, eager on the chip, and the replay of OPERATORS calls."""
    rows: list[dict[str, object]] = []
    for name, call in CALLS.items():
        x = torch.ones(1, 1, device="chip")

        def run(x: torch.Tensor = x, call: Callable[[torch.Tensor], object] = call) -> None:
            for _ in range(OPERATORS):
                call(x)

        graph = capture(run)
        peers = {
            "kernels": lambda name=name: kernel(name, OPERATORS * repeat),
            "replay": once(graph.replay, repeat, OPERATORS),
            "eager": once(run, 1, OPERATORS),
        }
        times = interleave(peers, rounds=rounds)
        rows.append(
            {
                "case": name,
                "kernel_us": times["kernels"].median * 1e6,
                "replay_us": times["replay"].median * 1e6,
                "eager_us": times["eager"].median * 1e6,
                "added_us": difference(times["replay"], times["kernels"]) * 1e6,
                "of_eager": ratio(times["replay"], times["eager"]),
            }
        )
    return rows


def decoding(rounds: int, repeat: int) -> dict[str, object]:
    """Time one decoding step of a small LLaMA with a static cache, eager and replayed."""
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=128,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to("chip").eval()
    cache = StaticCache(config=config, max_cache_len=128)
    token = torch.ones(1, 1, dtype=torch.int64, device="chip")
    position = torch.full((1, 1), 16, device="chip")

    def step() -> torch.Tensor:
        return model(token, past_key_values=cache, position_ids=position).logits

    with torch.no_grad():
        graph = capture(step)
        peers = {
            "eager": once(step, repeat, before=cache.reset),
            "replay": once(graph.replay, repeat, before=cache.reset),
        }
        times = interleave(peers, rounds=rounds)
    return {
        "case": f"decoding, {len(graph)} calls",
        "kernel_us": float("nan"),
        "replay_us": times["replay"].median * 1e6,
        "eager_us": times["eager"].median * 1e6,
        "added_us": float("nan"),
        "of_eager": ratio(times["replay"], times["eager"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21, help="measured rounds (default 21)")
    parser.add_argument("--repeat", type=int, default=10, help="replays per round (default 10)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        rows = operators(kernels(folder), options.rounds, options.repeat)
    rows.append(decoding(options.rounds, options.repeat))
    print_table(rows)
    worst = max(float(str(row["added_us"])) for row in rows[:-1])
    print(
        f"added: largest {worst:+.3f} us (goal at most +0.150); decoding {rows[-1]['of_eager']:.2f}x (goal 0.60)"
    )
    settings = {"rounds": options.rounds, "repeat": options.repeat, "operators": OPERATORS}
    save("graph_replay", rows, unfair=UNFAIR, settings=settings)


if __name__ == "__main__":
    main()
