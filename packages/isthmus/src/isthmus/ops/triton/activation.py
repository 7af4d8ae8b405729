"""SwiGLU and its backward, of two tensors or of one packed tensor."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from isthmus.ops.triton.launch import cdiv, in_rows, launch, like, wide

_BLOCK = 1024
_WARPS = 4


@triton.jit
def _forward(
    gate_ptr, up_ptr, out_ptr, columns, gate_stride, up_stride, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    gate = tl.load(gate_ptr + row * gate_stride + column, inside, other=0.0).to(WIDE)
    up = tl.load(up_ptr + row * up_stride + column, inside, other=0.0).to(WIDE)
    tl.store(out_ptr + row * columns + column, gate / (1 + tl.exp(-gate)) * up, inside)


@triton.jit
def _backward(
    grad_ptr, gate_ptr, up_ptr, dgate_ptr, dup_ptr, columns, grad_stride, gate_stride, up_stride, out_stride,
    WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    grad = tl.load(grad_ptr + row * grad_stride + column, inside, other=0.0).to(WIDE)
    gate = tl.load(gate_ptr + row * gate_stride + column, inside, other=0.0).to(WIDE)
    up = tl.load(up_ptr + row * up_stride + column, inside, other=0.0).to(WIDE)
    sigmoid = 1 / (1 + tl.exp(-gate))
    dgate = grad * up * sigmoid * (1 + gate * (1 - sigmoid))
    tl.store(dgate_ptr + row * out_stride + column, dgate, inside)
    tl.store(dup_ptr + row * out_stride + column, grad * gate * sigmoid, inside)


class _Halves(NamedTuple):
    """Gate and up as [rows, columns], and the shape of their product."""

    gate: torch.Tensor
    up: torch.Tensor
    shape: list[int]


def _halves(gate: torch.Tensor, up: torch.Tensor | None, dim: int) -> _Halves:
    shape = list(gate.shape)
    if up is not None:
        if gate.is_contiguous() and up.is_contiguous():  # one long row, so that all programs are full
            return _Halves(gate.view(1, -1), up.view(1, -1), shape)
        return _Halves(in_rows(gate), in_rows(up), shape)
    shape[dim] //= 2
    packed = gate if dim in (-1, gate.dim() - 1) else gate.contiguous()
    rows = in_rows(packed, packed.shape[dim % gate.dim() :].numel())
    first, second = rows.chunk(2, 1)
    return _Halves(first, second, shape)


def swiglu(gate: torch.Tensor, up: torch.Tensor | None, dim: int) -> torch.Tensor:
    """The operator ``isthmus::swiglu``."""
    first, second, shape = _halves(gate, up, dim)
    rows, columns = first.shape
    out = gate.new_empty(shape)
    launch(
        _forward, rows * cdiv(columns, _BLOCK), (first, second, out),
        (columns, first.stride(0), second.stride(0)), {"WIDE": wide(gate), "BLOCK": _BLOCK}, _WARPS,
    )  # fmt: skip
    return out


def swiglu_backward(
    grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor | None, dim: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The operator ``isthmus::swiglu_backward``; writes both halves of a packed gradient in one pass."""
    first, second, _ = _halves(gate, up, dim)
    rows, columns = first.shape
    slope = in_rows(grad if up is None else grad.contiguous(), columns)
    dgate = like(gate)
    if up is None:
        dup = None
        targets = dgate.view(rows, 2 * columns).chunk(2, 1)
    else:
        dup = torch.empty_like(dgate)
        targets = dgate.view(rows, columns), dup.view(rows, columns)
    launch(
        _backward, rows * cdiv(columns, _BLOCK), (slope, first, second, *targets),
        (columns, slope.stride(0), first.stride(0), second.stride(0), targets[0].stride(0)),
        {"WIDE": wide(gate), "BLOCK": _BLOCK}, _WARPS,
    )  # fmt: skip
    return dgate, dup
