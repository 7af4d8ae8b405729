"""The operators of isthmus.ops against PyTorch eager and torch.compile, on CPU tensors, two threads.

Every round measures each side once, forward and forward+backward, in float32 and bfloat16. The limit is a copy of as
many bytes, or a matrix product of as many FLOPs, measured in the same rounds.
"""

import argparse
import fnmatch
import os
import sys
import time
from collections.abc import Callable
from typing import Any

UNFAIR = (
    "Fresh memory costs page faults, more than these operators: the process runs under a malloc that keeps its "
    "memory (glibc tunables), for all sides. Denormals make matrix products ten times slower: flushed. Forward "
    "alone is without autograd; forward+backward uses autograd for ours and PyTorch's, AOTAutograd for compile. "
    "The copy of the limit has as many bytes in total as the operator must read and write, in a separate buffer."
)
TUNABLES = "GLIBC_TUNABLES"
SECONDS = 0.03  # length of one measurement: calls are repeated to take about this long


def _timed(function: Callable[[], object]) -> Callable[[], float]:
    """Make a peer of the harness: seconds per call, over as many calls as take SECONDS."""
    from harness import per_call

    function()
    start = time.perf_counter()
    function()
    return per_call(function, max(1, round(SECONDS / (time.perf_counter() - start))))


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of the result table, printing each when measured."""
    from llm_rows import chosen, row

    rows = []
    for which in chosen(options.only, 0.25 if options.quick else 1):
        rows.append(row(*which, rounds=options.rounds, timed=_timed, compiled=options.compile))
        print(*rows[-1].values(), flush=True)
    return rows


def memory() -> list[dict[str, Any]]:
    """Return peak bytes of forward+backward of linear_cross_entropy beyond inputs and gradients, on a chip."""
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
    parser.add_argument("--only", default="*", help="pattern of operators, such as '*norm' (default all)")
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (default 15)")
    parser.add_argument("--threads", type=int, default=2, help="threads of every side (default 2)")
    parser.add_argument("--quick", action="store_true", help="a quarter of the tokens, three rounds")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="skip torch.compile")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 3
    from train_step import KEEP_MEMORY

    if os.environ.get(TUNABLES) != KEEP_MEMORY:  # malloc reads it at process start
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
    main()
