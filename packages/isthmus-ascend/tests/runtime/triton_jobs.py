"""Triton kernels on NPUs, with triton-ascend's names; prints "equal"."""

import torch
import torch_npu  # noqa: F401
import triton
import triton.language as tl
from triton.language.extra.cann import libdevice
from triton.language.extra.cann.extension import extract_slice, get_element, insert_slice

ROWS, COLUMNS = tl.constexpr(8), tl.constexpr(16)


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, libdevice.fma(tl.load(x + at, at < n), 2.0, 0.0), at < n)


@triton.jit
def slices_kernel(x, part, whole, element):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    full = tl.load(x + at)
    taken = extract_slice(full, (2, 1), (2, 4), (1, 3))
    tl.store(part + tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :], taken)
    tl.store(whole + at, insert_slice(ful=full, sub=-taken, offsets=[5, 0], sizes=[2, 4], strides=[1, 2]))
    tl.store(element, get_element(full, (3, 5)))


def check_order() -> None:
    """Launches, operators and copies of a stream run in order."""
    x = torch.arange(3001, dtype=torch.float32).npu()
    out = torch.empty_like(x)
    for _ in range(5):
        double_kernel[(triton.cdiv(3001, 64),)](x, out, 3001, 64, multibuffer=True)
        double_kernel[(triton.cdiv(3001, 512),)](out, x, 3001, 512)
        x.mul_(0.5)
    assert torch.equal(x.cpu(), torch.arange(3001, dtype=torch.float32) * 32)


def check_slices() -> None:
    """Parts of tensors are those of PyTorch's slices."""
    x = torch.randn(8, 16)
    part, whole, element = (torch.zeros(*shape).npu() for shape in ((2, 4), (8, 16), (1,)))
    slices_kernel[(1,)](x.npu(), part, whole, element)
    expected = x.clone()
    expected[5:7, 0:8:2] = -x[2:4, 1:13:3]
    assert torch.equal(part.cpu(), x[2:4, 1:13:3])
    assert torch.equal(whole.cpu(), expected)
    assert element.item() == x[3, 5]


utilities = triton.runtime.driver.active.utils
assert (
    utilities.get_device_properties(0)["num_vectorcore"]
    > utilities.get_device_properties(0)["num_aicore"]
    > 0
)
check_order()
check_slices()
print("equal")
