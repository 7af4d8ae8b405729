"""Rotary position embedding; a program rotates all heads of one token.

A position outside the tables gives NaN, because a kernel cannot raise.
"""

import torch
import triton
import triton.language as tl

from isthmus.ops.triton.launch import wide


@triton.jit
def _rotate(
    x_ptr, out_ptr, cos_ptr, sin_ptr, positions_ptr, tokens, heads, rotated, size, x_batch, x_token, x_head,
    out_batch, out_token, out_head, table_rows, table_batch, positions_batch, half,
    FULL: tl.constexpr, INTERLEAVED: tl.constexpr, CONJUGATE: tl.constexpr, COPY: tl.constexpr,
    WIDE: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    batch = (tl.program_id(0) // tokens).to(tl.int64)
    token = (tl.program_id(0) % tokens).to(tl.int64)
    row = batch * table_batch + token
    known = token < table_rows
    if positions_ptr is not None:
        row = tl.load(positions_ptr + batch * positions_batch + token).to(tl.int64)
        known = (row >= 0) & (row < table_rows)
    pair = tl.arange(0, HALF)[None, :]
    first, second = pair, pair + half
    if INTERLEAVED:
        first, second = 2 * pair, 2 * pair + 1
    paired = pair < half
    width = 2 * half if FULL else half
    at = row * width + (first if FULL else pair)
    c1 = tl.load(cos_ptr + at, paired & known, other=float("nan")).to(WIDE)
    s1 = tl.load(sin_ptr + at, paired & known, other=float("nan")).to(WIDE)
    c2, s2 = c1, s1
    if FULL:
        c2 = tl.load(cos_ptr + row * width + second, paired & known, other=float("nan")).to(WIDE)
        s2 = tl.load(sin_ptr + row * width + second, paired & known, other=float("nan")).to(WIDE)
    if CONJUGATE:
        s1, s2 = -s2, -s1
    x_ptr += batch * x_batch + token * x_token
    out_ptr += batch * out_batch + token * out_token
    for start in range(0, rotated, HEADS):
        head = (start + tl.arange(0, HEADS)).to(tl.int64)[:, None]
        inside = (head < rotated) & paired
        a = tl.load(x_ptr + head * x_head + first, inside, other=0.0).to(WIDE)
        b = tl.load(x_ptr + head * x_head + second, inside, other=0.0).to(WIDE)
        tl.store(out_ptr + head * out_head + first, a * c1 - b * s1, inside)
        tl.store(out_ptr + head * out_head + second, b * c2 + a * s2, inside)
    if COPY:  # elements that are not rotated: the rest of each head, and the remaining heads
        element = tl.arange(0, REST)[None, :]
        for start in range(0, heads, HEADS):
            head = (start + tl.arange(0, HEADS)).to(tl.int64)[:, None]
            inside = (head < heads) & (element < size) & ((head >= rotated) | (element >= 2 * half))
            kept = tl.load(x_ptr + head * x_head + element, inside, other=0.0)
            tl.store(out_ptr + head * out_head + element, kept, inside)


def rotary(
    query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor,
    positions: torch.Tensor | None, seq_dim: int, dim: int, heads: int, interleaved: bool, conjugate: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """The operator ``isthmus::rotary``."""
    made: list[torch.Tensor | None] = []
    for tensor, rotated in ((query, heads), (key, -1)):
        out = None if tensor is None else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        if tensor is not None and out is not None:
            source = _unit(tensor)
            _launch(source, out, cos, sin, positions, seq_dim, dim, rotated, interleaved, conjugate)
        made.append(out)
    assert made[0] is not None
    return made[0], made[1]


def rotary_(
    query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor,
    positions: torch.Tensor | None, seq_dim: int, dim: int, heads: int, interleaved: bool, conjugate: bool,
) -> None:  # fmt: skip
    """The operator ``isthmus::rotary_``."""
    for tensor, rotated in ((query, heads), (key, -1)):
        if tensor is None:
            continue
        written = _unit(tensor)
        _launch(written, written, cos, sin, positions, seq_dim, dim, rotated, interleaved, conjugate)
        if written is not tensor:
            tensor.copy_(written)


def _unit(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with contiguous heads."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _launch(
    x: torch.Tensor, out: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor | None,
    seq_dim: int, dim: int, rotated: int, interleaved: bool, conjugate: bool,
) -> None:  # fmt: skip
    """Rotate the first ``rotated`` heads of ``x`` into ``out``, which may be ``x``; all if negative."""
    if not x.numel():
        return
    head_dim = 3 - seq_dim
    batches, tokens, heads, size = x.size(0), x.size(seq_dim), x.size(head_dim), x.size(-1)
    half = dim // 2
    several = positions is not None and positions.dim() > 1 and positions.size(0) > 1
    rows = cos.shape[:-1].numel() if positions is not None else cos.size(-2)
    block = triton.next_power_of_2(max(half, 1))
    strides = [
        stride
        for each in (x, out)
        for stride in (each.stride(0), each.stride(seq_dim), each.stride(head_dim))
    ]
    _rotate[(batches * tokens,)](
        x, out, cos.contiguous(), sin.contiguous(), None if positions is None else positions.contiguous(), tokens,
        heads, heads if rotated < 0 else rotated, size, *strides, rows,
        cos.size(1) if cos.dim() == 3 and cos.size(0) > 1 else 0, tokens if several else 0, half,
        FULL=cos.size(-1) == dim, INTERLEAVED=interleaved, CONJUGATE=conjugate,
        COPY=out is not x and (dim < size or 0 <= rotated < heads), WIDE=wide(x),
        HEADS=max(1, min(triton.next_power_of_2(heads), 1024 // block)), HALF=block,
        REST=triton.next_power_of_2(size), num_warps=4,
    )  # fmt: skip
