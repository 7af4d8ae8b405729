"""Attention with AscendSpeed's interface: named layouts, and masks that are True where a key is hidden."""

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
    """``dropout(softmax(scale * q @ k.T + alibi_mask, where atten_mask is False)) @ v``; AscendSpeed's signature.

    Args:
        q: in the layout: BNSD [batch, heads, queries, features], BSH [batch, queries, heads * features] or
            SBH [queries, batch, heads * features].
        k: in the same layout, with as many heads or a divisor of them.
        v: like ``k``.
        atten_mask: bool or numbers (0 is False), True where a key is hidden: [queries, keys] or
            [batch or 1, heads or 1, queries, keys].
        alibi_mask: added to the scores; shaped like ``atten_mask``.
        scale: factor of the scores.
        q_scale: must be 1.
        head_num: heads of q.
        io_layout: BNSD, BSH or SBH.
        keep_prob: probability that dropout keeps a weight.
        pre_tokens: must be the default or cover all keys; use the mask instead.
        next_tokens: must be the default or cover all keys.
        precise_mode: must be 0.
        groups: must be -1; the heads of k follow from its shape.
        sync: ignored.
        parallel: ignored.

    Returns:
        A tensor like ``q``.

    Raises:
        ValueError: the shapes do not match the layout, or the layout is unknown.
        NotImplementedError: an unsupported value of q_scale, pre_tokens, next_tokens, precise_mode or groups.
    """
    if io_layout not in ("BNSD", "BSH", "SBH"):
        raise ValueError(f"flash_attention: io_layout is {io_layout!r}; expected BNSD, BSH or SBH")
    longest = max(_tokens(q, io_layout), _tokens(k, io_layout))
    _require_served("q_scale", q_scale, q_scale == 1)
    _require_served("pre_tokens", pre_tokens, pre_tokens >= longest, "express the window in atten_mask")
    _require_served(
        "next_tokens",
        next_tokens,
        next_tokens == 1 or next_tokens >= longest,
        "express the window in atten_mask",
    )
    _require_served("precise_mode", precise_mode, precise_mode == 0)
    _require_served("groups", groups, groups == -1, "pass k and v with their own number of heads")
    return fusion_attention(
        q, k, v, head_num, io_layout, pse=alibi_mask, atten_mask=atten_mask, scale=scale, keep_prob=keep_prob,
        pse_type=0,
    )  # fmt: skip


def _require_served(name: str, value: object, served: bool, remedy: str = "omit it") -> None:
    if not served:
        raise NotImplementedError(f"flash_attention: {name}={value} is not supported; {remedy}")


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
    """Attention with the signature of ``npu_fusion_attention``.

    Args:
        query: in the layout: BSH [batch, queries, heads * features], SBH [queries, batch, heads * features],
            BSND [batch, queries, heads, features], BNSD [batch, heads, queries, features], or
            TND [tokens, heads, features] with the actual lengths.
        key: in the same layout; its heads divide those of the query.
        value: like ``key``.
        head_num: heads of the query.
        input_layout: BSH, SBH, BSND, BNSD or TND.
        pse: bias of the scores: [batch or 1, heads or 1, queries or 1, keys], or [heads, ...] without batch.
        padding_mask: must be None.
        atten_mask: bool or numbers (0 is False), True where a key is hidden: [queries, keys] or [batch or 1, heads
            or 1, queries, keys]. Without it pre_tockens, next_tockens and sparse_mode are ignored, as in the
            original. Sparse modes 2 to 4 ignore its values.
        scale: factor of the scores.
        keep_prob: probability that dropout keeps a weight.
        pre_tockens: visible keys before a query's position, in sparse modes 0 and 4.
        next_tockens: visible keys after it, in sparse modes 0 and 4.
        actual_seq_qlen: for TND, the end of each sequence (cumulative, without the leading 0).
        actual_seq_kvlen: the same for key and value.
        sparse_mode: 0, mask and window, aligned at the first query and key; 1, mask only; 2, causal, aligned at the
            first query and key; 3, causal, aligned at the last query and key; 4, window, aligned at the last query
            and key.
        pse_type: 1, ``softmax(scale * (products + pse))``; 0, ``softmax(scale * products + pse)``.

    Returns:
        A tensor like ``query``.

    Raises:
        ValueError: shapes, layout or lengths do not match.
        NotImplementedError: ``padding_mask`` is given, or an unknown sparse mode or pse_type.
    """
    if padding_mask is not None:
        raise NotImplementedError("fusion_attention: padding_mask is not supported; merge it into atten_mask")
    if pse_type not in (0, 1):
        raise NotImplementedError(
            f"fusion_attention: pse_type={pse_type} is not supported; pass the bias as pse with pse_type 0 or 1"
        )
    if sparse_mode not in range(5):
        raise NotImplementedError(
            f"fusion_attention: sparse_mode={sparse_mode} is not supported; pass the full mask with sparse_mode 1"
        )
    if input_layout not in _LAYOUTS:
        raise ValueError(
            f"fusion_attention: input_layout is {input_layout!r}; expected one of {', '.join(_LAYOUTS)}"
        )
    q, k, v = _separate_heads(query, key, value, head_num, input_layout)
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
    return _join_heads(out, input_layout)


def _window(mode: int, before: int, after: int) -> dict[str, Any]:
    """The window arguments of :func:`attend` for a sparse mode."""
    if mode == 1:
        return {}
    if mode in (2, 3):
        return {"right": 0, "top_left": mode == 2}
    left, right = (None if each >= _ALL else each for each in (before, after))
    return {"left": left, "right": right, "top_left": mode == 0}


def _tokens(tensor: torch.Tensor, layout: str) -> int:
    return tensor.shape[layout.index("S")]


def _separate_heads(query: Any, key: Any, value: Any, heads: int, layout: str) -> tuple[torch.Tensor, ...]:
    """[batch, tokens, heads, features] of each, or [tokens, heads, features] of TND."""
    for name, each in (("query", query), ("key", key), ("value", value)):
        if each.dim() != len(layout):
            raise ValueError(
                f"fusion_attention: {name} has shape {tuple(each.shape)}, which is not of layout {layout}"
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
            f"fusion_attention: head_num is {heads}, but query has shape {tuple(query.shape)} in layout {layout}"
        )
    if layout == "BNSD":
        return tuple(each.transpose(1, 2) for each in (query, key, value))
    return query, key, value


def _join_heads(out: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "BSH":
        return out.flatten(2)
    if layout == "SBH":
        return out.flatten(2).transpose(0, 1)
    return out.transpose(1, 2) if layout == "BNSD" else out


def _pairs(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as [batch, heads, queries, keys], with missing leading dimensions of size 1."""
    return tensor[(None,) * (4 - tensor.dim())] if tensor.dim() < 4 else tensor


def _lengths(q: Any, k: Any, layout: str, ends_q: Any, ends_k: Any) -> Any:
    if layout != "TND":
        if ends_q is not None or ends_k is not None:
            raise ValueError(
                f"fusion_attention: actual_seq_qlen and actual_seq_kvlen are for layout TND, not {layout}"
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
    """:func:`fusion_attention` as a module without parameters, like AscendSpeed's FlashAttention."""

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
        """:func:`fusion_attention`; ``gen_mask_parallel`` and ``sync`` are ignored."""
        return fusion_attention(
            query, key, value, head_num, input_layout, pse, padding_mask, atten_mask, scale, keep_prob,
            pre_tockens, next_tockens, actual_seq_qlen, actual_seq_kvlen, sparse_mode, pse_type,
        )  # fmt: skip
