"""Implementations by torch_npu's fused operators, for npu devices where that plugin is installed.

The calls follow the plugin's documentation. They were tested against a mock with those signatures, not on an NPU.
Operators whose documented behaviour differs or is missing use another implementation: npu_scaled_masked_softmax fills
with -10000, so a fully masked row is uniform instead of 0; npu_apply_adam_w takes one parameter and its powers of
beta; the writes into a paged cache say nothing of negative slots; gradients of norms and SwiGLU come from the
composite.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from isthmus.ops.registration import Implementation, operators

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_HALVES = (torch.bfloat16, torch.float16)
_WIDEST_HEAD = 768  # head size limit of npu_fusion_attention in older releases
_WIDEST_ROTARY = 896  # head size limit of npu_rotary_mul, exclusive
_WIDEST_PAGED_HEAD, _PAGE = (
    512,
    128,
)  # head size, and the unit of block sizes, of npu_fused_infer_attention_score
_TRIANGLE = 2048  # rows and columns of its mask
_Tensors = tuple[torch.Tensor, ...]


@cache
def _plugin() -> Any:
    return import_module("torch_npu")


def _norms(dtype: torch.dtype, weight: torch.Tensor | None) -> str:
    if dtype not in _FLOATS:
        return f"no kernel for {dtype}"
    if weight is None:
        return "npu_rms_norm needs a weight"
    return "" if weight.dtype == dtype else f"npu_rms_norm needs a weight of {dtype}; it is {weight.dtype}"


def rms_norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> _Tensors:
    """``isthmus::rms_norm`` by npu_rms_norm."""
    out, rstd = _plugin().npu_rms_norm(input, weight, epsilon=eps)
    return out, rstd


def refuses_rms_norm(input: torch.Tensor, weight: torch.Tensor | None, eps: float) -> str:
    """Refuse other dtypes, and a missing weight or one of another dtype."""
    return _norms(input.dtype, weight)


def add_rms_norm(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> _Tensors:
    """``isthmus::add_rms_norm`` by npu_add_rms_norm."""
    out, rstd, total = _plugin().npu_add_rms_norm(input, residual, weight, epsilon=eps)
    return out, total, rstd


def refuses_add_rms_norm(input: torch.Tensor, residual: torch.Tensor, weight: Any, eps: float) -> str:
    """Refuse what rms_norm refuses, and a residual of another dtype."""
    if residual.dtype != input.dtype:
        return f"npu_add_rms_norm needs a residual of {input.dtype}; it is {residual.dtype}"
    return _norms(input.dtype, weight)


def swiglu(gate: torch.Tensor, up: None, dim: int) -> torch.Tensor:
    """``isthmus::swiglu`` by npu_swiglu."""
    made: torch.Tensor = _plugin().npu_swiglu(gate, dim=dim)
    return made


def refuses_swiglu(gate: torch.Tensor, up: torch.Tensor | None, dim: int) -> str:
    """Refuse other dtypes, and gate and up in two tensors."""
    if up is not None:
        return "npu_swiglu takes gate and up in one tensor"
    return "" if gate.dtype in _FLOATS else f"no kernel for {gate.dtype}"


def rotary(
    query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor, positions: None,
    seq_dim: int, dim: int, heads: int, interleaved: bool, conjugate: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """``isthmus::rotary`` by npu_rotary_mul, with tables expanded to the head size."""

    def spread(table: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        rows = table[..., : like.shape[seq_dim], :]
        whole = rows.repeat_interleave(2, -1) if interleaved else torch.cat([rows, rows], -1)
        return (whole if whole.dim() == 3 else whole.unsqueeze(0)).unsqueeze(3 - seq_dim).to(like.dtype)

    def rotated(tensor: torch.Tensor) -> torch.Tensor:
        first, second = spread(cos, tensor), spread(-sin if conjugate else sin, tensor)
        mode = "interleave" if interleaved else "half"
        made: torch.Tensor = _plugin().npu_rotary_mul(tensor.contiguous(), first, second, rotary_mode=mode)
        return made

    return rotated(query), None if key is None else rotated(key)


def refuses_rotary(
    query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor, positions: Any,
    seq_dim: int, dim: int, heads: int, interleaved: bool, conjugate: bool,
) -> str:  # fmt: skip
    """Refuse positions, partial rotation, and tables of another dtype or width."""
    size = query.shape[-1]
    if query.dtype not in _FLOATS or cos.dtype != query.dtype:
        return f"npu_rotary_mul computes in the dtype of the tables, {cos.dtype}; the query is {query.dtype}"
    if positions is not None or dim != size or heads >= 0:
        return "npu_rotary_mul takes no positions and rotates whole heads only"
    if size % 64 or size >= _WIDEST_ROTARY or cos.shape[-1] * 2 != size:
        return (
            f"npu_rotary_mul takes head sizes of a multiple of 64 below {_WIDEST_ROTARY}; this one is {size}"
        )
    return ""


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Any, mask: Any, slopes: Any, cu_q: Any,
    cu_k: Any, rng: Any, longest_q: int, longest_k: int, scale: float, left: Any, right: int | None,
    top_left: bool, softcap: float, dropout_p: float,
) -> _Tensors:  # fmt: skip
    """``isthmus::attention`` by npu_fusion_attention."""
    hidden = None
    if right is not None:
        shift = 0 if top_left else longest_k - longest_q
        everything = torch.ones(longest_q, longest_k, dtype=torch.bool, device=query.device)
        hidden = everything.triu(shift + right + 1)
    found = _plugin().npu_fusion_attention(
        query,
        key,
        value,
        query.shape[2],
        "BSND",
        atten_mask=hidden,
        scale=scale,
        keep_prob=1.0,
        sparse_mode=0,
    )
    out, top, total = found[:3]
    return out, top[..., 0] + total[..., 0].log()  # both are repeated along a last dimension


def refuses_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Any, mask: Any, slopes: Any, cu_q: Any,
    cu_k: Any, rng: Any, longest_q: int, longest_k: int, scale: float, left: Any, right: int | None,
    top_left: bool, softcap: float, dropout_p: float,
) -> str:  # fmt: skip
    """Refuse features that npu_fusion_attention lacks, and queries with no visible key (undocumented)."""
    if query.dtype not in _HALVES:
        return f"no kernel for {query.dtype}"
    if any(each is not None for each in (bias, mask, slopes, cu_q, left)) or softcap or dropout_p:
        return "no bias, mask, ALiBi, packed sequences, left window, softcap or dropout"
    if not query.numel() or not key.numel():
        return "no tokens"
    if query.shape[-1] != value.shape[-1] or query.shape[-1] > _WIDEST_HEAD:
        return (
            f"head sizes {query.shape[-1]} and {value.shape[-1]}; one size up to {_WIDEST_HEAD} is supported"
        )
    if right is not None and (right < 0 or not (top_left or longest_k >= longest_q)):
        return "some queries have no visible key"
    return ""


@cache
def _triangle(device: torch.device) -> torch.Tensor:
    """The mask that npu_fused_infer_attention_score expects for every causal call and window."""
    return torch.ones(_TRIANGLE, _TRIANGLE, dtype=torch.bool, device=device).triu(1)


def paged_attention(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, table: torch.Tensor,
    ends: torch.Tensor, lengths: torch.Tensor, slopes: Any, sinks: Any, key_scale: Any, value_scale: Any,
    out: torch.Tensor, lse: Any, longest_q: int, longest_k: int, scale: float, left: int | None,
    right: int | None, softcap: float,
) -> None:  # fmt: skip
    """``isthmus::paged_attention`` by npu_fused_infer_attention_score."""
    queries, keys = ends.tolist()[1:], lengths.tolist()
    counts = [end - begin for begin, end in zip([0, *queries], queries, strict=False)]
    if any(not 0 < n <= k for n, k in zip(counts, keys, strict=True)):  # undocumented
        operators()["paged_attention"].composite(
            query, key_cache, value_cache, table, ends, lengths, slopes, sinks, key_scale, value_scale, out, lse,
            longest_q, longest_k, scale, left, right, softcap,
        )  # fmt: skip
        return
    made = _plugin().npu_fused_infer_attention_score(
        query[: queries[-1]].contiguous(),
        key_cache.flatten(2),
        value_cache.flatten(2),
        atten_mask=None if right is None else _triangle(query.device),
        actual_seq_lengths=queries,
        actual_seq_lengths_kv=keys,
        block_table=table.contiguous(),
        num_heads=query.shape[1],
        num_key_value_heads=key_cache.shape[2],
        scale=scale,
        input_layout="TND",
        block_size=key_cache.shape[1],
        sparse_mode=0 if right is None else 3 if left is None else 4,
        pre_tokens=2**31 - 1 if left is None else left,
        next_tokens=2**31 - 1 if right is None else 0,
    )
    out[: queries[-1]] = made[0]


def refuses_paged_attention(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, table: torch.Tensor,
    ends: torch.Tensor, lengths: torch.Tensor, slopes: Any, sinks: Any, key_scale: Any, value_scale: Any,
    out: torch.Tensor, lse: Any, longest_q: int, longest_k: int, scale: float, left: int | None,
    right: int | None, softcap: float,
) -> str:  # fmt: skip
    """Refuse features that npu_fused_infer_attention_score lacks or does not document."""
    if query.dtype not in _HALVES or key_cache.dtype != query.dtype:
        return f"no kernel for queries of {query.dtype} over a cache of {key_cache.dtype}"
    if any(each is not None for each in (slopes, sinks, key_scale, value_scale, lse)) or softcap:
        return "no ALiBi, sinks, scales, log-sum-exp or softcap"
    if right not in (None, 0) or (right is None and left is not None):
        return "no window that ends after a query's position or has no end"
    if not (key_cache.is_contiguous() and value_cache.is_contiguous()):
        return "no kernel for a cache that is a view with gaps"
    if not query.numel() or not lengths.numel():
        return "no tokens"
    if query.shape[-1] != value_cache.shape[-1] or query.shape[-1] > _WIDEST_PAGED_HEAD:
        return (
            f"head sizes {query.shape[-1]} and {value_cache.shape[-1]}; one size up to {_WIDEST_PAGED_HEAD} is "
            "supported"
        )
    if key_cache.shape[1] % _PAGE or key_cache.shape[1] > 4 * _PAGE:
        return (
            f"blocks of {key_cache.shape[1]} tokens; {_PAGE} to {4 * _PAGE} in steps of {_PAGE} are supported"
        )
    return ""


_SERVED: dict[str, tuple[Callable[..., Any], Callable[..., str]]] = {
    "rms_norm": (rms_norm, refuses_rms_norm),
    "add_rms_norm": (add_rms_norm, refuses_add_rms_norm),
    "swiglu": (swiglu, refuses_swiglu),
    "rotary": (rotary, refuses_rotary),
    "attention": (attention, refuses_attention),
    "paged_attention": (paged_attention, refuses_paged_attention),
}


def add() -> None:
    """Register the implementations; the plugin is imported on the first call."""
    for name, (call, refuses) in _SERVED.items():
        operators()[name].add(Implementation("npu", call, lambda device: device.type == "npu", refuses))


def register() -> None:
    """Register the implementations if torch_npu is installed."""
    if find_spec("torch_npu") is not None:
        add()
