"""Triton kernels of a script's own, launched as written for CUDA; prints their largest differences from PyTorch."""

import json

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import rsqrt


@triton.jit
def double(x):
    return x + x


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    both = tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask)
    tl.store(out + at, double(both), mask=mask)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](
        x, y, out, x.numel(), BLOCK=64, num_warps=4
    )
    return out


def add_after_warmup(x, y):
    out = torch.empty_like(x)
    compiled = add_kernel.warmup(x, y, out, x.numel(), BLOCK=64, grid=(1,))
    compiled._init_handles()
    properties = triton.runtime.driver.active.utils.get_device_properties(x.device.index)
    shared, registers = properties["max_shared_mem"], properties["max_num_regs"]
    assert min(registers // compiled.n_regs, shared // compiled.metadata.shared) > 0
    compiled[(triton.cdiv(x.numel(), 64), 1, 1)](x, y, out, x.numel(), 64)
    return out


@triton.heuristics({"BLOCK": lambda meta: triton.next_power_of_2(meta["columns"])})
@triton.jit
def softmax_kernel(x, out, stride, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - values.max(0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


def softmax(x):
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    softmax_kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1])
    return out


seen = []


@triton.autotune(
    configs=[
        triton.Config({"M": 16, "N": 16}, num_warps=2),
        triton.Config({"M": 32, "N": 16}, pre_hook=lambda meta: seen.append(meta["M"])),
    ],
    key=["K"],
    reset_to_zero=["out"],
)
@triton.jit
def matmul_kernel(a, b, out, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows, columns, inner = (
        tl.program_id(0) * M + tl.arange(0, M),
        tl.program_id(1) * N + tl.arange(0, N),
        tl.arange(0, K),
    )
    left = tl.load(a + rows[:, None] * K + inner[None, :])
    right = tl.load(b + inner[:, None] * 32 + columns[None, :])
    tl.atomic_add(out + rows[:, None] * 32 + columns[None, :], tl.dot(left, right, input_precision="ieee"))


def matmul(a, b):
    out = torch.zeros(32, 32, device="cuda")
    matmul_kernel[lambda meta: (32 // meta["M"], 32 // meta["N"])](a, b, out, a.shape[1])
    return out


@triton.jit
def bfloat16_kernel(x, out, whole, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(
        out + at, tl.where(value > -1, value * value - value, value) + tl.load(whole + at).to(tl.bfloat16)
    )
    tl.atomic_add(x + at * 0, value)


@triton.jit
def library_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(
        out + at, libdevice.tanh(value) + rsqrt(value * value + 1) + tl.extra.cuda.libdevice.pow(value, 2.0)
    )


@triton.jit
def rounding_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(out + at, libdevice.round(value))
    tl.store(out + BLOCK + at, tl.extra.cuda.libdevice.float2int_rn(value).to(tl.float32))


@triton.jit
def minimum_kernel(x, y, out, flag, scale):
    if flag:
        tl.store(out, tl.minimum(tl.load(x), tl.load(y)) * scale.to(tl.float32))


@triton.jit
def assembly_kernel(x):
    moved = tl.inline_asm_elementwise(
        "brev.b32 $0, $1;", "=r,r", [tl.load(x)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(x, moved)


def error(a, b):
    return (a.double() - b.double()).abs().max().item()


def bfloat16_errors():
    x = torch.randn(32, device="cuda", dtype=torch.bfloat16)
    whole, out, before = torch.arange(32, device="cuda", dtype=torch.int32), torch.empty_like(x), x.clone()
    bfloat16_kernel[(1,)](x, out, whole, BLOCK=32)
    total = before[0]
    for value in before:
        total = total + value
    expected = torch.where(before > -1, before * before - before, before) + whole.bfloat16()
    return max(error(out, expected), error(x[0], total), error(x[1:], before[1:]))


def library_error():
    x, out = torch.randn(16, device="cuda"), torch.empty(16, device="cuda")
    library_kernel[(1,)](x, out, BLOCK=16)
    return error(out, x.tanh() + (x * x + 1).rsqrt() + x**2)


def rounded():
    x = torch.tensor([0.49999997, -0.5, 2.5, 3e9], device="cuda")
    out = torch.empty(8, device="cuda")
    rounding_kernel[(1,)](x, out, BLOCK=4)
    return out.tolist()


def minimum():
    x, out = torch.tensor([float("nan"), 1.0], device="cuda"), torch.zeros(1, device="cuda")
    minimum_kernel[(1,)](x, x[1:], out, True, 0.5)
    return out.item()


def refusal(launch, argument):
    try:
        launch(argument)
    except (NotImplementedError, RuntimeError, ValueError) as failure:
        return str(failure)


def refused():
    whole = torch.ones(1, dtype=torch.int32, device="cuda")
    yield refusal(assembly_kernel[(1,)], whole)
    yield refusal(lambda x: library_kernel[(1,)](x, x, BLOCK=1), torch.ones(1))


def replayed():
    """Kernels of a captured graph, before and after operators, on other numbers than at the capture."""
    x, y, graph = torch.randn(150, device="cuda"), torch.randn(150, device="cuda"), torch.cuda.CUDAGraph()
    written = torch.zeros(150, device="cuda")
    with torch.cuda.graph(graph):
        out = add(x + 1, y) * 3
        add_kernel[(3,)](written, y, written, 150, BLOCK=64)
    assert not written.any()  # the capture has changed nothing
    x.fill_(2.0)
    graph.replay()
    graph.replay()
    return max(error(out, 6 * (3 + y)), error(written, 6 * y))


torch.manual_seed(0)
x, y = torch.randn(2, 150, device="cuda")
rows = torch.randn(6, 40, device="cuda").half()[::2, 3:]
a, b = torch.randn(32, 16, device="cuda"), torch.randn(16, 32, device="cuda")
target = triton.runtime.driver.active.get_current_target()
found = {
    "add": error(add(x, y), 2 * (x + y)),
    "warm": error(add_after_warmup(x, y), 2 * (x + y)),
    "softmax": error(softmax(rows), F.softmax(rows, -1)),
    "matmul": max(error(matmul(a, b), a @ b), error(matmul(a, b), a @ b)),
    "bfloat16": bfloat16_errors(),
    "library": library_error(),
    "rounded": rounded(),
    "minimum": minimum(),
    "hooks": sorted(set(seen)),
    "replayed": replayed(),
    "refused": list(refused()),
    "target": [target.backend, target.arch],
    "device": str(triton.runtime.driver.active.get_active_torch_device()),
}
print(json.dumps(found))
