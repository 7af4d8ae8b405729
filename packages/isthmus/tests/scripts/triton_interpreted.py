"""A kernel in Triton's interpreter, by TRITON_INTERPRET=1; prints the difference from PyTorch."""

import json

import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


x = torch.randn(100, device="cuda")
out = torch.empty_like(x)
double_kernel[(2,)](x, out, 100, BLOCK=64)
print(json.dumps({"error": (out - 2 * x).abs().max().item()}))
