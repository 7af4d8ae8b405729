"""Time in which the configurations of an autotuned product of matrices are compiled. Goal: a thousand in minutes.

1,008 configurations in threads, one per processor, with an empty cache. 144 of them differ in what the host compiles.
"""

import argparse
import itertools
import os
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import triton
import triton.language as tl
from harness import print_table, save

CONFIGURATIONS = [
    triton.Config({"M": m, "N": n, "K": k, "GROUP": group}, num_warps=warps, num_stages=stages)
    for m, n, k, group in itertools.product((16, 32, 64, 128), (16, 32, 64, 128), (16, 32, 64), (1, 4, 8))
    for warps, stages in ((1, 2), (2, 2), (4, 2), (4, 3), (4, 4), (8, 2), (8, 3))
]
USERS = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
UNFAIR = (
    "Nothing is measured of the kernels themselves, which an autotuner runs for a tenth of a second each."
)


@triton.autotune(CONFIGURATIONS, ["k"])
@triton.jit
def product_kernel(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    width = GROUP * tl.cdiv(n, N)
    first = tl.program_id(0) // width * GROUP
    size = min(tl.cdiv(m, M) - first, GROUP)
    row, column = first + tl.program_id(0) % size, tl.program_id(0) % width // size
    rows, columns, inner = row * M + tl.arange(0, M), column * N + tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = tl.load(a + rows[:, None] * k + (start + inner)[None, :], (rows < m)[:, None], 0.0)
        right = tl.load(b + (start + inner)[:, None] * n + columns[None, :], (columns < n)[None, :], 0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total, (rows < m)[:, None] & (columns < n)[None, :])


def processor_seconds() -> float:
    """Time that processors spent on this process and the compilers that it started."""
    return sum(each.ru_utime + each.ru_stime for each in map(resource.getrusage, USERS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="compilers at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        triton.knobs.cache.dir = cache
        start, used = time.perf_counter(), processor_seconds()
        with ThreadPoolExecutor(options.threads) as threads, triton.AsyncCompileMode(threads):
            product_kernel.warmup(*[torch.float32] * 3, 512, 512, 512, grid=(1,))
        seconds = time.perf_counter() - start
        used = processor_seconds() - used
    row = {"configurations": len(CONFIGURATIONS), "seconds": seconds, "processor_seconds": used}
    print_table([row])
    save("triton_autotune", [row], unfair=UNFAIR, settings={"threads": options.threads})


if __name__ == "__main__":
    main()
