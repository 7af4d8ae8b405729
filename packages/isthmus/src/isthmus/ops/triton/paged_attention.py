"""Launches of the kernels of a paged cache."""

import math
from typing import Any

import torch

from isthmus.ops.paged_attention import Paged
from isthmus.ops.triton import is_interpreted
from isthmus.ops.triton.attention import DTYPES, WIDEST_HEAD, side
from isthmus.ops.triton.launch import cdiv, launch, power_of_2
from isthmus.ops.triton.paged_forward import paged_forward, write_tokens

_COLUMNS = {128: 64, 256: 64, 512: 32}  # keys of a tile, by the bytes of a token's features; 16 beyond
_LIMITS = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}
_WRITTEN = 1024  # elements that a program writes at once


def paged_attention(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, *others: Any
) -> None:
    """The operator ``isthmus::paged_attention``."""
    paged = Paged(*others)
    query = query if query.stride(-1) == 1 else query.contiguous()
    heads, (blocks, block, key_heads) = query.shape[1], key_cache.shape[:3]
    groups, sequences = heads // key_heads, paged.seqlens_k.shape[0]
    slopes = None if paged.alibi_slopes is None else paged.alibi_slopes.expand(sequences, heads)
    scales = [
        None if each is None else each.expand(key_heads) for each in (paged.key_scale, paged.value_scale)
    ]
    widths = [max(16, power_of_2(each.shape[-1])) for each in (query, value_cache)]
    weight = max(widths) * query.element_size() * (1 + (query.dtype == torch.float32))
    columns = next((n for size, n in _COLUMNS.items() if weight <= size), 16)
    rows = min(64 if columns == 64 else 32, max(16, power_of_2(paged.max_seqlen_q * groups)))
    programs = cdiv(paged.max_seqlen_q * groups, rows)
    if not programs * sequences:
        return
    constants = {
        "SIZE": query.shape[-1],
        "VALUE_SIZE": value_cache.shape[-1],
        "SCALE": paged.scale * math.log2(math.e),
        "SOFTCAP": paged.softcap * math.log2(math.e),
        "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3",
        "DOT": DTYPES[torch.float32 if is_interpreted() else query.dtype],
        "ROWS": rows,
        "COLUMNS": columns,
        "WIDTH": widths[0],
        "VALUE_WIDTH": widths[1],
    }
    launch(
        paged_forward, sequences * key_heads * programs,
        (query, key_cache, value_cache, paged.block_table, paged.cu_seqlens_q.contiguous(),
         paged.seqlens_k.contiguous(), slopes, paged.sinks, *scales, paged.out, paged.lse),
        (query.stride()[:2], key_cache.stride()[:3], value_cache.stride()[:3], paged.block_table.stride(0),
         (0, 0) if slopes is None else slopes.stride(), 0 if paged.sinks is None else paged.sinks.stride(0),
         tuple(0 if each is None else each.stride(0) for each in scales), paged.out.stride()[:2],
         (0, 0) if paged.lse is None else paged.lse.stride(), key_heads, groups, programs, blocks, block,
         side(paged.left), side(paged.right)),
        constants, 4, 2,
    )  # fmt: skip


def refuses_paged_attention(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, *others: Any
) -> str:
    """Refuse float64, heads too large for a tile, and strided features."""
    paged = Paged(*others)
    if query.dtype not in DTYPES:
        return f"no kernel for {query.dtype}"
    size = max(query.shape[-1], value_cache.shape[-1])
    if size > WIDEST_HEAD:
        return f"head size {size} exceeds the kernel's limit of {WIDEST_HEAD}"
    if any(each.stride(-1) != 1 for each in (key_cache, value_cache, paged.out, paged.block_table)):
        return "no kernel for strided features or a strided block table"
    return ""


def cache_write(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, slots: torch.Tensor,
    key_scale: torch.Tensor | None, value_scale: torch.Tensor | None,
) -> None:  # fmt: skip
    """The operator ``isthmus::cache_write``."""
    key, value = (each if each.stride(-1) == 1 else each.contiguous() for each in (key, value))
    heads = key.shape[1]
    scales = [None if each is None else each.expand(heads) for each in (key_scale, value_scale)]
    widest = heads * max(key.shape[2], value.shape[2])
    if not slots.shape[0] * widest:
        return
    launch(
        write_tokens, slots.shape[0], (key, value, key_cache, value_cache, slots, *scales),
        (key.stride()[:2], value.stride()[:2], key_cache.stride()[:3], value_cache.stride()[:3], slots.stride(0),
         tuple(0 if each is None else each.stride(0) for each in scales), heads, *key_cache.shape[:2]),
        {"SIZE": key.shape[2], "VALUE_SIZE": value.shape[2], "LIMIT": _LIMITS.get(key_cache.dtype, 0.0),
         "BLOCK": min(power_of_2(widest), _WRITTEN)}, 4,
    )  # fmt: skip


def refuses_cache_write(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, slots: torch.Tensor,
    key_scale: torch.Tensor | None, value_scale: torch.Tensor | None,
) -> str:  # fmt: skip
    """Refuse strided features, and scales or quantization of float64, which the kernel computes in float32."""
    if key_cache.stride(-1) != 1 or value_cache.stride(-1) != 1:
        return "no kernel for a cache with strided features"
    scaled = key_scale is not None or value_scale is not None
    if key.dtype == torch.float64 and (key_cache.dtype != key.dtype or scaled):
        return "no kernel for float64 with scales or quantization"
    return ""
