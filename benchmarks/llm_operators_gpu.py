"""The operators of isthmus.ops on a CUDA device, against PyTorch eager, torch.compile and Liger-Kernel if installed.

The table is that of llm_operators.py plus bytes or FLOPs per second. The limit is a copy or a matrix product measured
in the same rounds, and limit_over_ours the fraction reached.
"""

import argparse
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch

UNFAIR = (
    "Times are device times between events, over as many calls as take a few milliseconds: host cost counts only if "
    "the device waits for it. The backward pass runs in the calling thread, for all sides: changing to autograd's "
    "thread and back in every call takes longer than an operator, and a training step does it once. Tensors are "
    "larger than the caches of the device. Liger-Kernel rotates queries and keys, and writes the gradient of logits, "
    "in place; the others do not. Products of float32 are PyTorch's default, without TF32; attention's are three "
    "products in TF32."
)
DEVICE = "cuda"
PORTION = 4  # factor of tokens over the cases for two cores
SIDE = 8192  # side of the matrices whose product is the limit
MILLISECONDS = 10.0  # length of one measurement
# Functions of liger_kernel.transformers.functional, and their arguments after a case's inputs.
LIGER: dict[str, tuple[str, tuple[Any, ...]]] = {
    "rms_norm": ("liger_rms_norm", (1e-6, 0.0, "llama", False)),
    "add_rms_norm": ("liger_fused_add_rms_norm", (1e-6, 0.0, "llama", False)),
    "swiglu": ("liger_swiglu", ()),
    "rotary": ("liger_rope", ()),
    "cross_entropy": ("liger_cross_entropy", ()),
    "linear_cross_entropy": ("liger_fused_linear_cross_entropy", ()),
}


def liger(name: str) -> dict[str, Callable[..., Any]]:
    """Return Liger-Kernel's side of an operator; empty if not installed or without the function."""
    if find_spec("liger_kernel") is None or name not in LIGER:
        return {}
    from liger_kernel.transformers import functional

    called, rest = LIGER[name]
    function = getattr(functional, called, None)
    if function is None:
        return {}
    if name == "rotary":  # it expects heads before tokens, like our case's functions

        def turned(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
            return function(q.transpose(1, 2), k.transpose(1, 2), cos, sin)

        return {"liger": turned}
    return {"liger": lambda *inputs: function(*inputs, *rest)}


def timed(function: Callable[[], object]) -> Callable[[], float]:
    """Make a peer of the harness: device seconds per call, over as many calls as take MILLISECONDS."""

    def measure(calls: int) -> float:
        function()  # after other peers its code is in no cache
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            function()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / calls

    measure(3)
    calls = max(1, round(MILLISECONDS / max(measure(3), 1e-3)))
    return lambda: measure(calls) / 1e3


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of the result table, printing each when measured."""
    from llm_rows import chosen, row

    rows = []
    for name, dtype, case, mode in chosen(options.only, PORTION, DEVICE):
        made = row(
            name, dtype, case, mode, rounds=options.rounds, timed=timed,
            compiled=options.compile and case.goals[1] is not None,  # compiling takes seconds
            others=liger(name), side=SIDE, device=DEVICE,
        )  # fmt: skip
        seconds = made["ours_ms"] / 1e3
        made.setdefault("over_liger", None)
        made["GB_per_s"] = case.moved[mode] / seconds / 1e9 if case.moved[mode] else None
        made["TFLOP_per_s"] = case.flops[mode] / seconds / 1e12 if case.flops[mode] else None
        rows.append(dict(sorted(made.items(), key=lambda item: item[0] == "limit_over_ours")))
        print(*rows[-1].values(), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="pattern of operators, such as '*norm' (default all)")
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (default 15)")
    parser.add_argument(
        "--no-compile",
        dest="compile",
        action="store_false",
        help="skip torch.compile (else where it has a goal)",
    )
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit(
            "llm_operators_gpu: no CUDA device available; run it on a machine with one, with a CUDA build of "
            "PyTorch, or benchmarks/llm_operators.py for the CPU"
        )
    from harness import print_table, save

    with torch.autograd.set_multithreading_enabled(False):
        rows = measure(options)
    if not rows:
        raise SystemExit(f"llm_operators_gpu: no operator matches {options.only!r}")
    print_table(rows)
    if options.only == "*" and options.compile:
        settings = {
            "rounds": options.rounds,
            "device": torch.cuda.get_device_name(),
            "triton": version("triton"),
        }
        save("llm_operators_gpu", rows, unfair=UNFAIR, settings=settings)


if __name__ == "__main__":
    main()
