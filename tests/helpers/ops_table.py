"""Calls of every computing function of isthmus.ops, for tests of common properties."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from isthmus import ops
from tests.helpers.ops_checks import leaf


class Case(NamedTuple):
    """A call of a function of isthmus.ops.

    Attributes:
        function: its name.
        call: it with all arguments but the tensors that get a gradient.
        inputs: those.
        operators: the operators that the call reaches; none if PyTorch's own do the work.
    """

    function: str
    call: Callable[..., Any]
    inputs: list[torch.Tensor]
    operators: tuple[str, ...]


def cases(device: str = "cpu", dtype: torch.dtype = torch.float64) -> list[Case]:
    """Return at least one call of every function."""
    return [
        *_rows(device, dtype),
        *_rotary(device, dtype),
        *_attention(device, dtype),
        *_packed_cases(device, dtype),
    ]


def _rows(device: str, dtype: torch.dtype) -> list[Case]:
    def x(*shape: int) -> torch.Tensor:
        return leaf(*shape, device=device, dtype=dtype)

    target = torch.tensor([1, -100, 3], device=device)
    mask = torch.arange(50, device=device).view(2, 1, 5, 5) % 3 == 0
    terms = {"label_smoothing": 0.1, "softcap": 3.0, "lse_square_scale": 0.1}
    return [
        Case("rms_norm", lambda a, w: ops.rms_norm(a, w, unit_offset=True), [x(3, 7), x(7)], ("rms_norm",)),
        Case("rms_norm", lambda a: ops.rms_norm(a, None), [x(2, 2, 5)], ("rms_norm",)),
        Case("add_rms_norm", lambda a, r: ops.add_rms_norm(a, r, None), [x(2, 2, 5), x(2, 2, 5)], ("add_rms_norm",)),
        Case("add_rms_norm", ops.add_rms_norm, [x(3, 7), x(3, 7), x(7)], ("add_rms_norm",)),
        Case("dropout_add_layer_norm",
             lambda a, r, w, b: ops.dropout_add_layer_norm(a, r, w, b, 0.0, 1e-5, prenorm=True),
             [x(3, 7), x(3, 7), x(7), x(7)], ("dropout_add_norm",)),
        Case("dropout_add_rms_norm", lambda a, r, w: ops.dropout_add_rms_norm(a, r, w, None, 0.0, 1e-5),
             [x(3, 7), x(3, 7), x(7)], ("dropout_add_norm",)),
        Case("swiglu", ops.swiglu, [x(3, 7), x(3, 7)], ("swiglu",)),
        Case("swiglu", ops.swiglu, [x(3, 14)], ("swiglu",)),
        Case("swiglu", lambda a: ops.swiglu(a, dim=1), [x(2, 6, 5)], ("swiglu",)),
        Case("scaled_masked_softmax", lambda a: ops.scaled_masked_softmax(a, mask, 0.5), [x(2, 3, 5, 5)],
             ("scaled_masked_softmax",)),
        *(Case("scaled_masked_softmax", lambda a, m=m: ops.scaled_masked_softmax(a, m, 0.7, True), [x(2, 3, 5, 5)],
               ("scaled_masked_softmax",)) for m in (None, mask)),
        Case("cross_entropy", lambda a: ops.cross_entropy(a, target, return_lse=True, **terms), [x(3, 9)],
             ("cross_entropy",)),
        Case("linear_cross_entropy", lambda a, w, b: ops.linear_cross_entropy(a, w, target, b, **terms),
             [x(3, 5), x(9, 5), x(9)], ("linear_cross_entropy",)),
    ]  # fmt: skip


def _rotary(device: str, dtype: torch.dtype) -> list[Case]:
    def x(*shape: int) -> torch.Tensor:
        return leaf(*shape, device=device, dtype=dtype)

    cos, sin = (
        leaf(6, 4, device=device, dtype=dtype).detach(),
        leaf(6, 4, device=device, dtype=dtype).detach(),
    )
    wide = [torch.cat([each, each], -1) for each in (cos, sin)]
    row = [each[None, :5] for each in wide]
    return [
        Case("rotary", lambda q: ops.rotary(q, cos, sin), [x(2, 5, 3, 9)], ("rotary",)),
        Case("rotary_qk", lambda q, k: ops.rotary_qk(q, k, cos, sin, interleaved=True),
             [x(2, 5, 4, 8), x(2, 5, 2, 8)], ("rotary",)),
        Case("apply_rotary_emb", lambda q: ops.apply_rotary_emb(q, cos, sin), [x(2, 5, 3, 9)], ("rotary",)),
        Case("apply_rotary_emb_kv_", lambda kv: ops.apply_rotary_emb_kv_(kv * 1, cos, sin), [x(2, 5, 2, 3, 8)],
             ("rotary_",)),
        Case("apply_rotary_emb_qkv_", lambda qkv: ops.apply_rotary_emb_qkv_(qkv * 1, cos, sin),
             [x(2, 5, 3, 3, 8)], ("rotary_",)),
        Case("apply_rotary_pos_emb", lambda q, k: ops.apply_rotary_pos_emb(q, k, *row),
             [x(2, 4, 5, 8), x(2, 2, 5, 8)], ("rotary",)),
        Case("unpad_rope", lambda q, k: ops.unpad_rope(q, k, *wide, [2, 0, 3]), [x(5, 16), x(5, 8)], ("rotary",)),
    ]  # fmt: skip


def _attention(device: str, dtype: torch.dtype) -> list[Case]:
    def x(*shape: int) -> torch.Tensor:
        return leaf(*shape, device=device, dtype=dtype)

    ends = torch.tensor([0, 3, 3, 5], dtype=torch.int32, device=device)
    mask = torch.arange(50, device=device).view(2, 1, 5, 5) % 3 == 0
    return [
        Case("flash_attn_func", lambda q, k, v: ops.flash_attn_func(q, k, v, causal=True, softcap=3.0),
             [x(2, 3, 6, 7), x(2, 5, 1, 7), x(2, 5, 1, 7)], ("attention",)),
        Case("flash_attn_kvpacked_func", ops.flash_attn_kvpacked_func, [x(2, 3, 4, 7), x(2, 5, 2, 2, 7)],
             ("attention",)),
        Case("flash_attn_qkvpacked_func", lambda a: ops.flash_attn_qkvpacked_func(a, window_size=(1, 0)),
             [x(2, 5, 3, 2, 7)], ("attention",)),
        Case("flash_attn_varlen_func",
             lambda q, k, v: ops.flash_attn_varlen_func(q, k, v, ends, ends, 3, 3, causal=True),
             [x(5, 4, 7), x(5, 2, 7), x(5, 2, 7)], ("attention",)),
        Case("flash_attn_varlen_kvpacked_func",
             lambda q, kv: ops.flash_attn_varlen_kvpacked_func(q, kv, ends, ends, 3, 3),
             [x(5, 4, 7), x(5, 2, 2, 7)], ("attention",)),
        Case("flash_attn_varlen_qkvpacked_func", lambda a: ops.flash_attn_varlen_qkvpacked_func(a, ends, 3),
             [x(5, 3, 2, 7)], ("attention",)),
        Case("flash_attention", lambda q, k, v: ops.flash_attention(q, k, v, mask, head_num=3),
             [x(2, 3, 5, 7) for _ in range(3)], ("attention",)),
        Case("fusion_attention", lambda q, k, v: ops.fusion_attention(q, k, v, 3, "SBH", atten_mask=mask),
             [x(5, 2, 21) for _ in range(3)], ("attention",)),
        Case("fusion_attention",
             lambda q, kv: ops.fusion_attention(q, kv, kv, 4, "TND", actual_seq_qlen=[3, 3, 5],
                                                actual_seq_kvlen=[3, 3, 5]),
             [x(5, 4, 7), x(5, 2, 7)], ("attention",)),
    ]  # fmt: skip


def _packed_cases(device: str, dtype: torch.dtype) -> list[Case]:
    def x(*shape: int) -> torch.Tensor:
        return leaf(*shape, device=device, dtype=dtype)

    def ints(*values: Any) -> torch.Tensor:
        return torch.tensor(values, device=device)

    routing = ints([1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1])
    experts = ints([0, 1], [2, 0], [1, 2], [0, 2])
    rows, kept = ints(0, 2, 5), ints([1, 1, 0], [1, 0, 0])
    sizes = ([2, 3], [4, 4], [2, 3], [8, 8], [8, 8], [2, 3], [4, 4], [4, 4], [4, 9])
    return [
        Case("grouped_matmul", lambda a, w: ops.grouped_matmul(a, w, ints(2, 0, 3)), [x(5, 4), x(3, 4, 6)],
             ("grouped_matmul",)),
        Case("permute", lambda a, p: ops.permute(a, routing, p)[:2], [x(4, 5), x(4, 3)], ("gather_rows",)),
        Case("permute_by_experts", lambda a, p: ops.permute_by_experts(a, experts, p)[:2], [x(4, 5), x(4, 2)],
             ("gather_rows",)),
        Case("unpermute", lambda a, p: ops.unpermute(a, ints(0, 2, 1, 2, 0, 3), (4, 5), permuted_probs=p),
             [x(6, 5), x(6)], ("scatter_rows",)),
        Case("pad_seqlen", lambda a: ops.pad_seqlen(a, [2, 0, 3], 4), [x(5, 6)], ("pad_seqlen",)),
        Case("unpad_seqlen", lambda a: ops.unpad_seqlen(a, [2, 0, 3]), [x(3, 4, 6)], ("unpad_seqlen",)),
        Case("unpad_softmax", lambda a: ops.unpad_softmax(a, [2, 0, 3], 2), [x(26)], ("unpad_softmax",)),
        Case("unpad_strided_batch_matmul",
             lambda a, b: ops.unpad_strided_batch_matmul(a, b, False, True, *sizes, 2, 2), [x(5, 8), x(5, 8)],
             ("unpad_strided_batch_matmul",)),
        Case("index_first_axis", lambda a: ops.index_first_axis(a, rows), [x(6, 3)], ()),
        Case("index_put_first_axis", lambda a: ops.index_put_first_axis(a, rows, 7), [x(3, 3)], ()),
        Case("pad_input", lambda a: ops.pad_input(a, rows, 2, 4), [x(3, 3)], ()),
        Case("unpad_input", lambda a: ops.unpad_input(a, kept)[0], [x(2, 3, 4)], ()),
    ]  # fmt: skip
