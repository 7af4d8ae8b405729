"""Launches of the attention kernels.

Tokens outside every sequence, or beyond the given maximum length, get NaN, because a kernel cannot raise.
"""

import math
from typing import Any, NamedTuple

import torch
import triton.language as tl

from isthmus.ops.attention import Rest
from isthmus.ops.triton import is_interpreted
from isthmus.ops.triton.attention_backward import backward_keys, backward_queries
from isthmus.ops.triton.attention_forward import forward
from isthmus.ops.triton.launch import cdiv, launch, power_of_2

WIDEST_HEAD = 256
_FAR = 2**30  # beyond any length; the sum of two fits in int32

# Dtypes of the tile products. The interpreter uses NumPy, which has no bfloat16, so it computes in float32.
DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class _Tiles(NamedTuple):
    """Tile sizes in tokens, and the launch configuration."""

    rows: int
    columns: int
    warps: int
    stages: int


# Keyed by the bytes of one token's features, so that the tiles fit in shared memory and registers.
_FORWARD = {128: _Tiles(128, 64, 4, 3), 256: _Tiles(128, 64, 8, 2), 512: _Tiles(64, 32, 4, 2)}
_BACKWARD = {128: _Tiles(64, 64, 4, 2), 256: _Tiles(64, 64, 8, 2), 512: _Tiles(32, 32, 4, 2)}
_SMALLEST = _Tiles(16, 16, 4, 1)


class _Call(NamedTuple):
    """Arguments common to all kernels."""

    tensors: tuple[torch.Tensor | None, ...]
    strides: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    batch: int
    window: tuple[int | None, int | None]
    named: dict[str, Any]
    weight: int  # bytes of a token's features, doubled for options that need more registers


def _call(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rest: Rest) -> _Call:
    ends_q, ends_k = rest.cu_seqlens_q, rest.cu_seqlens_k
    batch = query.shape[0] if ends_q is None or ends_k is None else ends_q.shape[0] - 1
    heads = query.shape[-2]
    pairs = batch, heads, rest.max_seqlen_q, rest.max_seqlen_k
    slopes = None if rest.alibi_slopes is None else rest.alibi_slopes.expand(pairs[:2])
    spread = [slopes, *(None if each is None else each.expand(pairs) for each in (rest.bias, rest.mask))]
    widths, share = _widths(query, value), 1 - rest.dropout_p
    named = {
        "SIZE": query.shape[-1],
        "VALUE_SIZE": value.shape[-1],
        "SCALE": rest.scale * math.log2(math.e),
        "SOFTCAP": rest.softcap * math.log2(math.e),
        "KEPT": round(share * 2**32),
        "FACTOR": 1 / max(share, 2.0**-32),
        "TOP_LEFT": rest.top_left,
        "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3",
        "DOT": DTYPES[torch.float32 if is_interpreted() else query.dtype],
        "WIDTH": widths[0],
        "VALUE_WIDTH": widths[1],
    }
    return _Call(
        (*spread, ends_q, ends_k, rest.rng if rest.dropout_p else None),
        tuple((0,) if each is None else each.stride() for each in spread),
        (query.shape[-3], key.shape[-3], heads, heads // key.shape[-2]),
        batch,
        (side(rest.left), side(rest.right)),
        named,
        _weight(query, value, rest),
    )


def _widths(query: torch.Tensor, value: torch.Tensor) -> list[int]:
    return [max(16, power_of_2(each.shape[-1])) for each in (query, value)]


def _weight(query: torch.Tensor, value: torch.Tensor, rest: Rest) -> int:
    crowded = rest.bias is not None or rest.mask is not None or rest.dropout_p > 0
    size = query.element_size() * (1 + (query.dtype == torch.float32))
    return max(_widths(query, value)) * size * (1 + crowded)


def side(length: int | None) -> int | None:
    """A side of a window as the kernels take it, in int32."""
    return None if length is None else max(-_FAR, min(length, _FAR))


def _tiles(table: dict[int, _Tiles], call: _Call) -> _Tiles:
    return next((tiles for size, tiles in table.items() if call.weight <= size), _SMALLEST)


def _launch(
    kernel: Any, table: dict[int, _Tiles], call: _Call, heads: int, longest: int, by_rows: bool,
    tensors: tuple[torch.Tensor, ...], strides: tuple[tuple[int, ...], ...],
) -> None:  # fmt: skip
    """Launch one program per sequence, head and block of tokens."""
    tiles = _tiles(table, call)
    narrow = min(call.named["WIDTH"], call.named["VALUE_WIDTH"]) == 16
    # With 16 features and 8 warps, Triton 3.6 addresses shared memory out of range in the backward pass.
    warps = 4 if narrow and table is _BACKWARD else tiles.warps
    blocks = cdiv(longest, tiles.rows if by_rows else tiles.columns)
    launch(
        kernel, call.batch * heads * blocks, (*tensors, *call.tensors),
        (*strides, *call.strides, *call.sizes, blocks, *call.window),
        call.named | {"ROWS": tiles.rows, "COLUMNS": tiles.columns}, warps, tiles.stages,
    )  # fmt: skip


def _dense(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The tensors with contiguous features."""
    return [each if each.stride(-1) == 1 else each.contiguous() for each in tensors]


def _steps(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of (batch, token, head); the batch stride of a packed tensor is 0."""
    return (0, *tensor.stride()[:2]) if tensor.dim() == 3 else tensor.stride()[:3]


def _sums(query: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Shape of the log-sum-exp, and its strides of (batch, head)."""
    if query.dim() == 3:
        return (query.shape[1], query.shape[0]), (0, query.shape[0])
    batch, queries, heads = query.shape[:3]
    return (batch, heads, queries), (heads * queries, queries)


def _empty(shape: tuple[int, ...], like: torch.Tensor, dtype: torch.dtype, packed: bool) -> torch.Tensor:
    if packed:  # for tokens that no program writes
        return torch.full(shape, math.nan, dtype=dtype, device=like.device)
    return torch.empty(shape, dtype=dtype, device=like.device)


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *others: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator ``isthmus::attention``."""
    rest = Rest(*others)
    call, packed = _call(query, key, value, rest), rest.cu_seqlens_q is not None
    q, k, v = _dense(query, key, value)
    shape, steps = _sums(query)
    out = _empty((*query.shape[:-1], value.shape[-1]), query, query.dtype, packed)
    lse = _empty(shape, query, torch.float32, packed)
    _launch(
        forward, _FORWARD, call, query.shape[-2], rest.max_seqlen_q, True, (q, k, v, out, lse),
        (*map(_steps, (q, k, v, out)), steps),
    )  # fmt: skip
    return out, lse


def attention_backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    lse: torch.Tensor, *others: Any,
) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
    """The operator ``isthmus::attention_backward``; deterministic."""
    rest = Rest(*others[:-1])
    call, packed = _call(query, key, value, rest), rest.cu_seqlens_q is not None
    q, k, v, dy, y = _dense(query, key, value, grad, out)
    lse, delta = lse.contiguous(), torch.empty_like(lse, memory_format=torch.contiguous_format)
    dq, dk, dv = (_empty(tuple(each.shape), each, each.dtype, packed) for each in (query, key, value))
    of_inputs, steps = tuple(map(_steps, (q, k, v, dy))), _sums(query)[1]
    _launch(
        backward_queries, _BACKWARD, call, query.shape[-2], rest.max_seqlen_q, True,
        (q, k, v, dy, y, lse, delta, dq), (*of_inputs, _steps(y), steps, _steps(dq)),
    )  # fmt: skip
    _launch(
        backward_keys, _BACKWARD, call, key.shape[-2], rest.max_seqlen_k, False,
        (q, k, v, dy, lse, delta, dk, dv), (*of_inputs, steps, _steps(dk), _steps(dv)),
    )  # fmt: skip
    return dq, dk, dv, None


def refuses_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *others: Any) -> str:
    """Refuse float64, for which Triton has no tile products, and heads too large for a tile.

    A mask with dropout is refused where the tiles are the smallest: Triton 3.6 computes wrong results.
    """
    if query.dtype not in DTYPES:
        return f"no kernel for {query.dtype}"
    size = max(query.shape[-1], value.shape[-1])
    if size > WIDEST_HEAD:
        return f"head size {size} exceeds the kernel's limit of {WIDEST_HEAD}"
    rest = Rest(*others)
    if rest.mask is not None and rest.dropout_p and _weight(query, value, rest) > max(_FORWARD):
        return f"the kernel for {query.dtype} and head size {size} does not support a mask with dropout"
    return ""


def refuses_attention_backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *others: Any
) -> str:
    """Refuse the gradient of the bias, and what the forward refuses."""
    return (
        "no kernel computes the gradient of the bias"
        if others[-1]
        else refuses_attention(query, key, value, *others[2:-1])
    )
