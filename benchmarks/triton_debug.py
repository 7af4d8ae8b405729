"""Time of a Triton kernel with debug=True, against the same kernel without and PyTorch's sum. Goal: at most 50 ms.

A sum of a million float32 elements on the CPU. The limit is the kernel without checks.
"""

import argparse

import torch
import triton
import triton.language as tl
from harness import interleave, per_call, print_table, ratio, save

ELEMENTS = 1_000_000
UNFAIR = (
    "Checks run on one thread, the peers on all. Warm-up rounds leave out the first launch, which compiles."
)


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (default 15)")
    options = parser.parse_args()
    x, y, out = (torch.randn(ELEMENTS) for _ in range(3))
    grid = (triton.cdiv(ELEMENTS, 1024),)
    peers = {
        "checked": per_call(lambda: add_kernel[grid](x, y, out, ELEMENTS, 1024, debug=True)),
        "unchecked": per_call(lambda: add_kernel[grid](x, y, out, ELEMENTS, 1024)),
        "pytorch": per_call(lambda: torch.add(x, y, out=out)),
    }
    times = interleave(peers, rounds=options.rounds)
    row = {
        **{f"{name}_ms": each.median * 1e3 for name, each in times.items()},
        "checked_over_unchecked": ratio(times["checked"], times["unchecked"]),
    }
    print_table([row])
    print(f"checked: {times['checked'].median * 1e3:.1f} ms (goal at most 50)")
    save("triton_debug", [row], unfair=UNFAIR, settings={"elements": ELEMENTS, "rounds": options.rounds})


if __name__ == "__main__":
    main()
