"""Rotary position embedding (Su et al., 2021)."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from isthmus.ops import cpu
from isthmus.ops.registration import apply, compute_dtype, operator

_Pair = tuple[torch.Tensor, torch.Tensor | None]


@operator("rotary")
def _rotary(
    query: torch.Tensor,
    key: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None,
    seq_dim: int,
    dim: int,
    heads: int,
    interleaved: bool,
    conjugate: bool,
) -> _Pair:
    def rotated(tensor: torch.Tensor, heads: int) -> torch.Tensor:
        count = tensor.size(3 - seq_dim) if heads < 0 else heads
        part = tensor.narrow(3 - seq_dim, 0, count)
        first, second = (_rows(table, positions, tensor, seq_dim) for table in (cos, sin))
        out = tensor.clone(memory_format=torch.contiguous_format)
        done = _rotate(part[..., :dim], first, second, interleaved, conjugate)
        out.narrow(3 - seq_dim, 0, count)[..., :dim].copy_(done)
        return out

    return rotated(query, heads), None if key is None else rotated(key, -1)


@operator("rotary_")
def _rotary_(query: torch.Tensor, key: torch.Tensor | None, *others: Any) -> None:
    rotated, other = _rotary.composite(query, key, *others)
    query.copy_(rotated)
    if key is not None:
        key.copy_(other)


for _each in (_rotary, _rotary_):
    cpu.add(_each)


def _rows(
    table: torch.Tensor, positions: torch.Tensor | None, tensor: torch.Tensor, seq_dim: int
) -> torch.Tensor:
    """The table's row for each token, broadcastable over the heads."""
    if positions is not None:
        flat = table.flatten(0, -2).index_select(0, positions.flatten())
        table = flat.unflatten(0, positions.shape)
    else:
        table = table[..., : tensor.size(seq_dim), :]
    table = table.unsqueeze(0) if table.dim() == 2 else table
    return table.unsqueeze(3 - seq_dim)


def _rotate(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool, conjugate: bool
) -> torch.Tensor:
    """Rotate all elements of the last dimension, in float32 or wider."""
    wide = compute_dtype(x)
    last = x.size(-1)
    if cos.size(-1) != last:
        cos, sin = (
            each.repeat_interleave(2, -1) if interleaved else torch.cat([each, each], -1)
            for each in (cos, sin)
        )
    x, cos, sin = x.to(wide), cos.to(wide), sin.to(wide)
    if conjugate:
        return x * cos - _quarter(x * sin, interleaved)
    return x * cos + _quarter(x, interleaved) * sin


def _quarter(x: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Map each pair (a, b) to (-b, a)."""
    if interleaved:
        return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Any, key: Any, cos: Any, sin: Any, positions: Any, inplace: bool, *settings: Any
    ) -> Any:
        ctx.save_for_backward(cos, sin, positions)
        ctx.settings = settings
        ctx.pair = key is not None
        if inplace:
            ctx.mark_dirty(query, *([key] if ctx.pair else []))
            _rotary_(query, key, cos, sin, positions, *settings)
            return (query, key) if ctx.pair else query
        out, other = _rotary(query, key, cos, sin, positions, *settings)
        return (out, other) if ctx.pair else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, grad_key: torch.Tensor | None = None) -> tuple[Any, ...]:
        cos, sin, positions = ctx.saved_tensors
        *settings, conjugate = ctx.settings
        dq, dk = _rotary(grad, grad_key, cos, sin, positions, *settings, not conjugate)
        return dq, dk, *([None] * (4 + len(ctx.settings)))


def rotary(
    query: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    positions: torch.Tensor | None = None,
    layout: str = "bshd",
    dim: int | None = None,
    heads: int | None = None,
    interleaved: bool = False,
    conjugate: bool = False,
    inplace: bool = False,
) -> torch.Tensor:
    """Rotate pairs of elements of each head by the angle of the token's position, in float32 or wider.

    The pair (a, b) becomes (a cos - b sin, b cos + a sin). The gradient is the inverse rotation. Strided heads, such
    as views of a packed projection or of its transpose, are read without a copy.

    Args:
        query: [batch, seq, heads, size] or [seq, heads, size]; float16, bfloat16, float32 or float64.
        cos: [rows, width] or [batch or 1, rows, width] of any float dtype, where width is ``dim / 2`` or ``dim``;
            with ``dim`` each element has its own entry. No gradient.
        sin: like ``cos``.
        positions: integers [batch or 1, seq] ([seq] for a query of three dimensions), the table row of each token;
            None starts at row 0.
        layout: "bshd", or "bhsd" where the heads come before the sequence.
        dim: number of leading elements of a head to rotate. Default: twice the width of the tables if a head has as
            many, else their width.
        heads: number of leading heads to rotate, such as those of query and key in a packed projection. Default: all.
        interleaved: pairs are adjacent elements (GPT-J); otherwise elements i and ``dim / 2 + i`` (NeoX, LLaMA).
        conjugate: rotate by the negative angle.
        inplace: write into the query and return it.

    Returns:
        A tensor like ``query``.

    Raises:
        ValueError: the tables do not match the query, or require a gradient.
        IndexError: a position is outside the tables.
    """
    out, _ = apply_rotary(
        query, None, cos, sin, positions, layout, dim, heads, interleaved, conjugate, inplace
    )
    return out


def rotary_qk(
    query: torch.Tensor,
    key: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    positions: torch.Tensor | None = None,
    layout: str = "bshd",
    dim: int | None = None,
    interleaved: bool = False,
    conjugate: bool = False,
    inplace: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`rotary` of query and key in one call; the key may have fewer heads.

    Raises:
        ValueError: as :func:`rotary`, or query and key differ in more than the number of heads.
    """
    out, other = apply_rotary(
        query, key, cos, sin, positions, layout, dim, None, interleaved, conjugate, inplace
    )
    assert other is not None
    return out, other


def apply_rotary(
    query: torch.Tensor,
    key: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None,
    layout: str,
    dim: int | None,
    heads: int | None,
    interleaved: bool,
    conjugate: bool,
    inplace: bool,
) -> _Pair:
    """Implementation of :func:`rotary` and :func:`rotary_qk`."""
    if inplace and key is not None and torch.is_grad_enabled() and (query.requires_grad or key.requires_grad):
        # Autograd supports in-place writes into views one tensor at a time.
        for each in (query, key):
            apply_rotary(each, None, cos, sin, positions, layout, dim, None, interleaved, conjugate, True)
        return query, key
    given, batched = (query, key), query.dim() == 4
    seq_dim = _seq_dim(query, layout)
    dim = _dim(query, cos, dim)
    _check(query, key, cos, sin, seq_dim, dim, heads)
    tokens = query.size(seq_dim - (not batched))
    if positions is None and cos.size(-2) < tokens:
        raise ValueError(
            f"rotary: tables of {cos.size(-2)} rows for {tokens} tokens; they need one row per token"
        )
    if not batched:
        query, key = query.unsqueeze(0), None if key is None else key.unsqueeze(0)
        positions = None if positions is None or positions.dim() == 2 else positions.unsqueeze(0)
    # The results have the query's memory layout: the operator sees sequence and heads in memory order.
    swapped = query.stride(1) < query.stride(2)
    if swapped:
        query, key = query.transpose(1, 2), None if key is None else key.transpose(1, 2)
    order = 3 - seq_dim if swapped else seq_dim
    settings = (order, dim, -1 if heads is None else heads, interleaved, conjugate)
    made = apply(_Rotary, query, key, cos, sin, positions, inplace, *settings)
    if inplace:
        return given
    out, other = made if key is not None else (made, None)
    if swapped:
        out, other = out.transpose(1, 2), None if other is None else other.transpose(1, 2)
    return (out, other) if batched else (out.squeeze(0), None if other is None else other.squeeze(0))


def _seq_dim(query: torch.Tensor, layout: str) -> int:
    if layout not in ("bshd", "bhsd"):
        raise ValueError(f"rotary: unknown layout {layout!r}; expected 'bshd' or 'bhsd'")
    if query.dim() not in (3, 4):
        raise ValueError(
            f"rotary: query has shape {tuple(query.shape)}; it must have 4 dimensions, or 3 without the batch"
        )
    return layout.index("s")


def _dim(query: torch.Tensor, cos: torch.Tensor, dim: int | None) -> int:
    width, size = cos.size(-1), query.size(-1)
    found = (2 * width if 2 * width <= size else width) if dim is None else dim
    if found % 2 or found > size or found not in (width, 2 * width):
        raise ValueError(
            f"rotary: tables of width {width} cannot rotate {found} of the {size} elements of a head; "
            "dim must be even, at most the head size, and once or twice the width"
        )
    return found


def _check(query: Any, key: Any, cos: Any, sin: Any, seq_dim: int, dim: int, heads: int | None) -> None:
    if cos.shape != sin.shape or cos.dim() not in (2, 3):
        raise ValueError(
            f"rotary: cos has shape {tuple(cos.shape)} and sin {tuple(sin.shape)}; both must be [rows, width] or "
            "[batch, rows, width]"
        )
    if torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad):
        raise ValueError("rotary: cos and sin require a gradient and get none; pass them detached")
    head_dim = query.dim() - 1 - seq_dim
    if heads is not None and not 0 <= heads <= query.size(head_dim):
        raise ValueError(f"rotary: heads is {heads}; it must be from 0 to {query.size(head_dim)}")
    if key is None:
        return
    one, other = query.shape, key.shape
    alike = one[:head_dim] == other[:head_dim] and one[head_dim + 1 :] == other[head_dim + 1 :]
    if not alike or key.dtype != query.dtype:
        raise ValueError(
            f"rotary: key is {key.dtype} {tuple(key.shape)} and query is {query.dtype} {tuple(query.shape)}; they "
            "may differ only in the number of heads"
        )
