"""Triton kernels with a fault each, for docs/guides/triton-debug.md: no GPU is needed."""

import torch
import triton
import triton.language as tl

from isthmus_triton.debug import KernelFault


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at)  # no mask
    b = tl.load(y + at, mask=at < n)
    tl.store(out + at, a + b, mask=at < n)


@triton.jit
def column_sum_kernel(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns)
    total = tl.load(out + at, mask=at < columns) + value  # all programs add to the same row
    tl.store(out + at, total, mask=at < columns)


@triton.jit
def mean_kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float16)  # too narrow for a long sum
    for row in range(rows):
        total += tl.load(x + row * columns + at, mask=at < columns)
    tl.store(out + at, total / rows, mask=at < columns)


def mean_kernel_reference(x):
    return {"out": x.float().mean(0).half()}


def add(**options):
    x, y, out = (torch.ones(1000) for _ in range(3))
    add_kernel[(8,)](x, y, out, 1000, 128, **options)


def column_sum(**options):
    column_sum_kernel[(20,)](torch.rand(20, 30), torch.zeros(30), 30, 32, **options)


def mean():
    x = torch.full((2000, 100), 0.7).half()
    mean_kernel[(4,)](x, torch.zeros(100, dtype=torch.float16), 2000, 100, 32)


if __name__ == "__main__":
    for function in (add, column_sum):
        try:
            function(debug=True)
        except KernelFault as fault:
            print(fault)
