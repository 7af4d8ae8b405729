"""A Triton kernel on the host chip."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * factor, at < n)


x = torch.randn(1000, device="chip")
out = torch.empty_like(x)
scale_kernel[(triton.cdiv(1000, 256),)](x, out, 1000, 3.0, BLOCK=256)
print(torch.equal(out, x * 3))
