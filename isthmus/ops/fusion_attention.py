"""Attention as AscendSpeed and its operators have it: layouts by name, masks that are True where a key is hidden."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from isthmus.ops.attention import attend

_ALL = 2147483647
_LAYOUTS = ("BSH", "SBH", "BSND", "BNSD", "TND")


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    atten_mask: torch.Tensor | None = None,
    alibi_mask: torch.Tensor | None = None,
    scale: float = 1.0,
    q_scale: float = 1.0,
    head_num: int = 1,
    io_layout: str = "BNSD",
    keep_prob: float = 1.0,
    pre_tokens: int = _ALL,
    next_tokens: int = 1,
    precise_mode: int = 0,
    groups: int = -1,
    sync: bool = False,
    parallel: bool = True,
) -> torch.Tensor:
    """``dropout(softmax(scale * q @ k.T + alibi_mask, where atten_mask is False)) @ v``, AscendSpeed's operator.

    Args:
        q: of the layout: BNSD [batch, heads, queries, features], BSH [batch, queries, heads * features] or
            SBH [queries, batch, heads * features].
        k: likewise, of as many heads or of a divisor of them.
        v: likewise.
        atten_mask: bool, or numbers of which 0 is False; True where a key is hidden: [queries, keys] or
            [batch or 1, heads or 1, queries, keys].
        alibi_mask: added to the scores, of such a shape.
        scale: of the products.
        q_scale: 1; the operator has no use for it.
        head_num: heads of q.
        io_layout: BNSD, BSH or SBH.
        keep_prob: share of the weights that dropout keeps.
        pre_tokens: how far back the mask reaches; only the default, all, since the mask says it.
        next_tokens: how far ahead; only the default, or all.
        precise_mode: 0; all modes but that are the device's own.
        groups: -1; the heads of k are taken from its shape.
        sync: when a device makes the mask of dropout; it changes no result.
        parallel: where a device makes it; it changes no result.

    Returns:
        A tensor like ``q``.

    Raises:
        ValueError: shapes or a layout that do not fit.
        NotImplementedError: a value of q_scale, pre_tokens, next_tokens, precise_mode or groups that has no
            meaning here.
    """
    if io_layout not in ("BNSD", "BSH", "SBH"):
        raise ValueError(f"flash_attention: io_layout is {io_layout!r}; it is one of BNSD, BSH, SBH")
    longest = max(_tokens(q, io_layout), _tokens(k, io_layout))
    _only("q_scale", q_scale, q_scale == 1)
    _only("pre_tokens", pre_tokens, pre_tokens >= longest, "put the window into atten_mask")
    _only(
        "next_tokens",
        next_tokens,
        next_tokens == 1 or next_tokens >= longest,
        "put the window into atten_mask",
    )
    _only("precise_mode", precise_mode, precise_mode == 0)
    _only("groups", groups, groups == -1, "give k and v their own number of heads")
    return fusion_attention(
        q, k, v, head_num, io_layout, pse=alibi_mask, atten_mask=atten_mask, scale=scale, keep_prob=keep_prob,
        pse_type=0,
    )  # fmt: skip


def _only(name: str, value: object, served: bool, remedy: str = "leave it out") -> None:
    if not served:
        raise NotImplementedError(f"flash_attention: {name}={value} is not served; {remedy}")


def fusion_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    head_num: int,
    input_layout: str,
    pse: torch.Tensor | None = None,
    padding_mask: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _ALL,
    next_tockens: int = _ALL,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    pse_type: int = 1,
) -> torch.Tensor:
    """Attention with the arguments of ``npu_fusion_attention``.

    Args:
        query: of the layout: BSH [batch, queries, heads * features], SBH [queries, batch, heads * features],
            BSND [batch, queries, heads, features], BNSD [batch, heads, queries, features], or
            TND [tokens, heads, features] with the actual lengths.
        key: likewise; its heads divide those of the query.
        value: likewise.
        head_num: heads of the query.
        input_layout: one of those names.
        pse: added to the products: [batch or 1, heads or 1, queries or 1, keys], or [heads, ...] without batch.
        padding_mask: None; the operator has no use for it.
        atten_mask: bool, or numbers of which 0 is False; True where a key is hidden. Without it the next three
            are ignored, as the operator's documentation says. [queries, keys], [batch or 1, heads or 1, queries,
            keys]; of sparse modes 2 to 4 only that it is there counts.
        scale: of the products.
        keep_prob: share of the weights that dropout keeps.
        pre_tockens: keys seen before a query's own; in sparse modes 0 and 4.
        next_tockens: keys seen after it; in sparse modes 0 and 4.
        actual_seq_qlen: of TND, where each sequence ends (cumulative, without the leading 0).
        actual_seq_kvlen: likewise of key and value.
        sparse_mode: 0, mask and window, the first query beside the first key; 1, the mask alone; 2, causal with
            the first query beside the first key; 3, causal with the last query beside the last key; 4, the window
            with the last query beside the last key.
        pse_type: 1, ``softmax(scale * (products + pse))``; 0, ``softmax(scale * products + pse)``.

    Returns:
        A tensor like ``query``.

    Raises:
        ValueError: shapes, a layout or lengths that do not fit.
        NotImplementedError: padding_mask, a sparse mode above 4 or a pse_type above 1.
    """
    if padding_mask is not None:
        raise NotImplementedError("fusion_attention: padding_mask is not served; put it into atten_mask")
    if pse_type not in (0, 1):
        raise NotImplementedError(
            f"fusion_attention: pse_type={pse_type} is not served; pass the bias itself as pse with type 0 or 1"
        )
    if sparse_mode not in range(5):
        raise NotImplementedError(
            f"fusion_attention: sparse_mode={sparse_mode} is not served; pass the whole mask with mode 1"
        )
    if input_layout not in _LAYOUTS:
        raise ValueError(
            f"fusion_attention: input_layout is {input_layout!r}; it is one of {', '.join(_LAYOUTS)}"
        )
    q, k, v = _separated(query, key, value, head_num, input_layout)
    bias = None if pse is None else _pairs(pse.to(q.dtype) if pse.dtype != q.dtype else pse)
    hidden = atten_mask is not None
    out, _ = attend(
        q, k, v,
        bias=bias * scale if bias is not None and pse_type == 1 else bias,
        mask=_pairs(atten_mask.bool()) if atten_mask is not None and sparse_mode < 2 else None,
        lengths=_lengths(q, k, input_layout, actual_seq_qlen, actual_seq_kvlen),
        scale=scale,
        **(_window(sparse_mode, pre_tockens, next_tockens) if hidden else {}),
        dropout_p=1 - keep_prob,
    )  # fmt: skip
    return _joined(out, input_layout)


def _window(mode: int, before: int, after: int) -> dict[str, Any]:
    """What of the keys a sparse mode leaves."""
    if mode == 1:
        return {}
    if mode in (2, 3):
        return {"right": 0, "top_left": mode == 2}
    left, right = (None if each >= _ALL else each for each in (before, after))
    return {"left": left, "right": right, "top_left": mode == 0}


def _tokens(tensor: torch.Tensor, layout: str) -> int:
    return tensor.shape[layout.index("S")]


def _separated(query: Any, key: Any, value: Any, heads: int, layout: str) -> tuple[torch.Tensor, ...]:
    """[batch, tokens, heads, features] of each, or [tokens, heads, features] of TND."""
    for name, each in (("query", query), ("key", key), ("value", value)):
        if each.dim() != len(layout):
            raise ValueError(
                f"fusion_attention: {name} is {tuple(each.shape)}, which is not of layout {layout}"
            )
    if layout.endswith("H"):
        if query.shape[2] % heads:
            raise ValueError(f"fusion_attention: head_num {heads} does not divide {query.shape[2]}")
        size = query.shape[2] // heads
        shared = (each.unflatten(2, (-1, size)) for each in (query, key))
        q, k = shared
        v = value.unflatten(2, (k.shape[2], -1))
        return (q, k, v) if layout == "BSH" else tuple(each.transpose(0, 1) for each in (q, k, v))
    if query.shape[layout.index("N")] != heads:
        raise ValueError(
            f"fusion_attention: head_num is {heads} and query is {tuple(query.shape)} of layout {layout}"
        )
    if layout == "BNSD":
        return tuple(each.transpose(1, 2) for each in (query, key, value))
    return query, key, value


def _joined(out: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "BSH":
        return out.flatten(2)
    if layout == "SBH":
        return out.flatten(2).transpose(0, 1)
    return out.transpose(1, 2) if layout == "BNSD" else out


def _pairs(tensor: torch.Tensor) -> torch.Tensor:
    """With dimensions of size 1 for those that are not given: [batch, heads, queries, keys]."""
    return tensor[(None,) * (4 - tensor.dim())] if tensor.dim() < 4 else tensor


def _lengths(q: Any, k: Any, layout: str, ends_q: Any, ends_k: Any) -> Any:
    if layout != "TND":
        if ends_q is not None or ends_k is not None:
            raise ValueError(
                f"fusion_attention: actual_seq_qlen and actual_seq_kvlen are of TND, not {layout}"
            )
        return None
    if ends_q is None or ends_k is None:
        raise ValueError("fusion_attention: layout TND needs actual_seq_qlen and actual_seq_kvlen")
    found = []
    for tensor, ends in ((q, ends_q), (k, ends_k)):
        whole = [0, *(int(each) for each in ends)]
        longest = max([0, *[b - a for a, b in itertools.pairwise(whole)]])
        found.append((torch.tensor(whole, dtype=torch.int32, device=tensor.device), longest))
    (cu_q, longest_q), (cu_k, longest_k) = found
    return cu_q, cu_k, longest_q, longest_k


class FlashSelfAttention(nn.Module):
    """:func:`fusion_attention` as a module without weights, in the form of AscendSpeed's FlashAttention."""

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        head_num: int,
        input_layout: str,
        pse: torch.Tensor | None = None,
        padding_mask: torch.Tensor | None = None,
        atten_mask: torch.Tensor | None = None,
        scale: float = 1.0,
        keep_prob: float = 1.0,
        pre_tockens: int = _ALL,
        next_tockens: int = _ALL,
        gen_mask_parallel: bool = True,
        sync: bool = False,
        actual_seq_qlen: Sequence[int] | None = None,
        actual_seq_kvlen: Sequence[int] | None = None,
        sparse_mode: int = 0,
        pse_type: int = 1,
    ) -> torch.Tensor:
        """See :func:`fusion_attention`; gen_mask_parallel and sync say where and when a device makes the mask of
        dropout and change no result.
        """
        return fusion_attention(
            query, key, value, head_num, input_layout, pse, padding_mask, atten_mask, scale, keep_prob,
            pre_tockens, next_tockens, actual_seq_qlen, actual_seq_kvlen, sparse_mode, pse_type,
        )  # fmt: skip
