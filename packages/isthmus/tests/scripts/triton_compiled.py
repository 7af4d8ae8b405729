"""A Triton kernel of a script's own, launched by compiled functions; prints the differences from PyTorch."""

import json

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


def kernel(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out


def wrapped(x, y):
    out = torch.empty_like(x)
    wrap_triton(add_kernel)[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out


@triton_op("triton_compiled::add", mutates_args=())
def operator(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return wrapped(x, y)


def error(add):
    compiled = torch.compile(lambda a, b: add(a * 2, b).sin() + 1, fullgraph=True)
    return (compiled(x, y) - ((x * 2 + y).sin() + 1)).abs().max().item()


x, y = torch.randn(2, 100, device="cuda")
print(json.dumps({"kernel": error(kernel), "wrapped": error(wrapped), "operator": error(operator)}))
