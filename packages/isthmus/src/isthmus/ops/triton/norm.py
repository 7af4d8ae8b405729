"""RMSNorm, with and without residual addition, and its backward."""

import torch
import triton
import triton.language as tl

from isthmus.ops.registration import compute_dtype
from isthmus.ops.triton.launch import cdiv, in_rows, launch, like, plan, processors, too_wide, wide


@triton.jit
def _forward(
    x_ptr, residual_ptr, weight_ptr, out_ptr, sum_ptr, rstd_ptr, rows, columns, x_stride, residual_stride,
    EPS: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * x_stride + column, inside, other=0.0).to(WIDE)
    if residual_ptr is not None:
        x += tl.load(residual_ptr + row * residual_stride + column, inside, other=0.0).to(WIDE)
        tl.store(sum_ptr + row * columns + column, x, inside)
    rstd = tl.rsqrt(tl.sum(x * x, 1, keep_dims=True) / columns + EPS)
    tl.store(rstd_ptr + row, rstd, row < rows)
    out = x * rstd
    if weight_ptr is not None:
        out *= tl.load(weight_ptr + column, column < columns, other=0.0).to(WIDE)
    tl.store(out_ptr + row * columns + column, out, inside)


@triton.jit
def _backward(
    grad_ptr, grad_sum_ptr, x_ptr, weight_ptr, rstd_ptr, dx_ptr, dw_ptr, rows, columns, grad_stride, sum_stride,
    x_stride, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)[None, :]
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + column, column < columns, other=0.0).to(WIDE)
        dw = tl.zeros((ROWS, BLOCK), WIDE)
    for start in range(program * ROWS, rows, tl.num_programs(0) * ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]  # in the interpreter start is an int
        inside = (row < rows) & (column < columns)
        grad = tl.load(grad_ptr + row * grad_stride + column, inside, other=0.0).to(WIDE)
        x = tl.load(x_ptr + row * x_stride + column, inside, other=0.0).to(WIDE)
        rstd = tl.load(rstd_ptr + row, row < rows, other=0.0)
        hat = x * rstd
        slope = grad
        if weight_ptr is not None:
            dw += grad * hat
            slope = grad * weight
        dx = rstd * (slope - hat * (tl.sum(slope * hat, 1, keep_dims=True) / columns))
        if grad_sum_ptr is not None:
            dx += tl.load(grad_sum_ptr + row * sum_stride + column, inside, other=0.0).to(WIDE)
        tl.store(dx_ptr + row * columns + column, dx, inside)
    if weight_ptr is not None:
        total = tl.sum(dw, 0, keep_dims=True)
        tl.store(dw_ptr + program.to(tl.int64) * columns + column, total, column < columns)


def rms_norm(
    input: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator ``isthmus::rms_norm``."""
    out, _, rstd = _normalised(input, None, weight, eps)
    return out, rstd


def add_rms_norm(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The operator ``isthmus::add_rms_norm``."""
    return _normalised(input, residual, weight, eps)


def _normalised(
    input: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x, added = in_rows(input), None if residual is None else in_rows(residual)
    rows, columns = x.shape
    out = like(input)
    total = out if added is None else like(input)
    rstd = input.new_empty((*input.shape[:-1], 1), dtype=compute_dtype(input))
    by = plan(columns)
    launch(
        _forward, cdiv(rows, by.rows), (x, added, _dense(weight), out, total, rstd),
        (rows, columns, x.stride(0), 0 if added is None else added.stride(0)),
        {"EPS": eps, "WIDE": wide(input), "ROWS": by.rows, "BLOCK": by.block}, by.warps,
    )  # fmt: skip
    return out, total, rstd


def rms_norm_backward(
    grad: torch.Tensor,
    grad_sum: torch.Tensor | None,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    rstd: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The operator ``isthmus::rms_norm_backward``; deterministic."""
    x, slope, added = in_rows(input), in_rows(grad), None if grad_sum is None else in_rows(grad_sum)
    rows, columns = x.shape
    by = plan(columns)
    programs = min(cdiv(rows, by.rows), processors(x.device) * max(1, 16 // by.warps))
    dx = like(input)
    parts = None if weight is None else rstd.new_empty((programs, columns))
    launch(
        _backward, programs, (slope, added, x, _dense(weight), rstd.contiguous(), dx, parts),
        (rows, columns, slope.stride(0), 0 if added is None else added.stride(0), x.stride(0)),
        {"WIDE": wide(input), "ROWS": by.rows, "BLOCK": by.block}, by.warps,
    )  # fmt: skip
    return dx, None if parts is None else parts.sum(0)


def _dense(weight: torch.Tensor | None) -> torch.Tensor | None:
    return None if weight is None else weight.contiguous()


def refuses_rms_norm(input: torch.Tensor, *_: object) -> str:
    """Refuse rows too long for a program."""
    return too_wide(input)


refuses_add_rms_norm = refuses_rms_norm_backward = refuses_rms_norm
