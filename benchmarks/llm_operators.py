"""The operators of isthmus.ops against PyTorch eager and torch.compile, on CPU tensors, two threads.

Every round measures each side once, forward and forward+backward, in float32 and bfloat16. The limit beside is a copy
of as many bytes, or a matrix product of as many FLOPs, measured in the same rounds.
"""

import argparse
import fnmatch
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNFAIR = (
    "Fresh memory costs page faults, more than these operators do: the process runs under a malloc that keeps its "
    "memory (glibc tunables), for all sides alike. Denormals make matrix products ten times slower: flushed. Forward "
    "alone is without autograd; forward+backward is autograd's for ours and PyTorch's, AOTAutograd's for compile. "
    "The copy of the limit has as many bytes in all as the operator must read and write, in one buffer of its own."
)
TUNABLES = "GLIBC_TUNABLES"
SECONDS = 0.03  # of one measurement: calls are repeated until they take about that long


def _forward(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Callable[[], None]:
    import torch

    def call() -> None:
        with torch.no_grad():
            function(*inputs)

    return call


def _both(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Callable[[], None]:
    """Forward and backward, with the same gradients of the outputs at every call."""
    import torch

    leaves = [each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad]

    def outputs() -> list[torch.Tensor]:
        made = function(*inputs)
        return list(made) if isinstance(made, tuple) else [made]

    grads = [torch.randn_like(each) if each.dim() else torch.ones_like(each) for each in outputs()]

    def call() -> None:
        torch.autograd.grad(outputs(), leaves, grads)

    return call


def _limit(moved: int, flops: int, dtype: Any) -> tuple[Callable[[], object], float]:
    """Something that takes as long as the limit, when its seconds are multiplied by the number beside."""
    import torch

    if flops:
        a, b = torch.randn(1024, 1024).to(dtype), torch.randn(1024, 2048).to(dtype)
        out = torch.empty(1024, 2048, dtype=dtype)
        return (lambda: torch.mm(a, b, out=out)), flops / (2 * 1024 * 1024 * 2048)
    source = torch.zeros(moved // 2, dtype=torch.int8)
    target = torch.empty_like(source)
    return (lambda: target.copy_(source)), 1.0


def _timed(function: Callable[[], object]) -> Callable[[], float]:
    """A peer of the harness: seconds per call, over as many calls as take SECONDS."""
    from harness import per_call

    function()
    start = time.perf_counter()
    function()
    return per_call(function, max(1, round(SECONDS / (time.perf_counter() - start))))


def _row(name: str, dtype: Any, case: Any, mode: int, options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from harness import interleave, ratio

    make = _forward if mode == 0 or case.in_place else _both
    sides = {"ours": make(case.ours, case.inputs), "eager": make(case.eager, case.inputs)}
    if options.compile and not case.in_place:
        torch.compiler.reset()
        sides["compile"] = make(torch.compile(case.eager, dynamic=False), case.inputs)
    limit, factor = _limit(case.moved[mode], case.flops[mode], dtype)
    peers = {side: _timed(function) for side, function in sides.items()}
    times = interleave(peers | {"limit": _timed(limit)}, rounds=options.rounds)
    row = {
        "operator": name,
        "sizes": case.sizes,
        "dtype": str(dtype).removeprefix("torch."),
        "pass": "step" if case.in_place else ("forward", "forward+backward")[mode],
        "ours_ms": times["ours"].median * 1e3,
    }
    for side, goal in zip(("eager", "compile"), case.goals, strict=True):
        row[f"over_{side}"] = ratio(times["ours"], times[side]) if side in times else None
        row[f"goal_{side}"] = goal
    return row | {"limit_over_ours": ratio(times["limit"], times["ours"]) * factor}


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the result table, printed as they come."""
    import torch
    from llm_cases import CASES
    from llm_cases_other import CASES as OTHERS

    rows = []
    for name, make in (CASES | OTHERS).items():
        if not fnmatch.fnmatch(name, options.only):
            continue
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            case = make(dtype, 4 if options.quick else 1)
            for mode in (0,) if case.in_place else (0, 1):
                rows.append(_row(name, dtype, case, mode, options))
                print(*rows[-1].values(), flush=True)
    return rows


def memory() -> list[dict[str, Any]]:
    """Peak bytes that forward+backward of linear_cross_entropy takes beyond its inputs and gradients, on a chip."""
    import torch
    from llm_cases import linear_cross_entropy

    if not torch.accelerator.is_available():
        return []
    device = torch.accelerator.current_accelerator()
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        case = linear_cross_entropy(dtype, 1)
        inputs = tuple(each.detach().to(device).requires_grad_(each.requires_grad) for each in case.inputs)
        row: dict[str, Any] = {
            "memory of": "linear_cross_entropy",
            "dtype": str(dtype).removeprefix("torch."),
        }
        for side, function in {"ours": case.ours, "eager": case.eager}.items():
            before = torch.accelerator.memory_allocated()
            torch.accelerator.reset_peak_memory_stats()
            grads = torch.autograd.grad(function(*inputs), inputs[:2])
            extra = torch.accelerator.max_memory_allocated() - before - sum(each.nbytes for each in grads)
            row[f"{side}_MiB"] = extra / 2**20
            del grads
        rows.append(row | {"over_eager": row["ours_MiB"] / row["eager_MiB"], "goal_eager": 0.25})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="operators that match, such as '*norm' (default all)")
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (default 15)")
    parser.add_argument("--threads", type=int, default=2, help="of every side (default 2)")
    parser.add_argument("--quick", action="store_true", help="a quarter of the tokens, three rounds")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 3
    from train_step import KEEP_MEMORY

    if os.environ.get(TUNABLES) != KEEP_MEMORY:  # malloc reads it when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {TUNABLES: KEEP_MEMORY})
    import torch
    from harness import print_table, save

    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    rows = measure(options)
    if not rows:
        raise SystemExit(f"llm_operators: no operator matches {options.only!r}")
    print_table(rows)
    used = memory() if fnmatch.fnmatch("linear_cross_entropy", options.only) else []
    if used:
        print_table(used)
    if options.only == "*" and options.compile and not options.quick:
        save(
            "llm_operators",
            [*rows, *used],
            unfair=UNFAIR,
            settings={"rounds": options.rounds, "threads": options.threads},
        )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
