"""The functions of xFormers, with its names and signatures.

They accept the biases of the installed xFormers and those that ``isthmus run --provide xformers`` supplies: a bias is
identified by the name of its class. A class that is not listed here is applied through its ``materialize`` method.
"""

from collections.abc import Sequence
from typing import Any

import torch

from isthmus.ops import norm
from isthmus.ops.attention import attend

_Tensors = torch.Tensor | Sequence[torch.Tensor]

# Causal biases, and whether the first query is aligned with the first key (else the last with the last).
_CAUSAL = {
    "LowerTriangularMask": True,
    "LowerTriangularMaskWithTensorBias": True,
    "LowerTriangularFromBottomRightMask": False,
    "LowerTriangularFromBottomRightLocalAttentionMask": False,
    "BlockDiagonalCausalMask": True,
    "BlockDiagonalCausalFromBottomRightMask": False,
    "BlockDiagonalCausalLocalAttentionMask": True,
    "BlockDiagonalCausalLocalAttentionFromBottomRightMask": False,
}


def memory_efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Attention of query over key and value.

    Args:
        query: [batch, queries, heads, features], [batch, queries, features], or with groups of heads [batch, queries,
            groups, heads, features].
        key: the same with keys in place of queries.
        value: like ``key``; its features may differ.
        attn_bias: added to the scores: a tensor [batch, heads, queries, keys] ([batch, queries, keys] and [batch,
            groups, heads, queries, keys] for the other forms), or an ``AttentionBias``.
        p: dropout probability.
        scale: factor of the scores; None is ``1 / sqrt(features)``.
        op: ignored.
        output_dtype: dtype of the result; None is the query's.

    Returns:
        The shape of ``query`` with the features of ``value``; queries with no visible key give 0.

    Raises:
        NotImplementedError: a paged bias, or quantized keys and values.
        ValueError: shapes or dtypes do not match, ``attn_bias`` is bool, or ``p`` is outside [0, 1].
    """
    return _attend(query, key, value, attn_bias, p, scale, output_dtype)[0]


memory_efficient_attention_forward = memory_efficient_attention


def memory_efficient_attention_forward_requires_grad(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Like :func:`memory_efficient_attention`, and the log-sum-exp of the scores [batch, heads, queries].

    Raises:
        NotImplementedError: dropout, whose random numbers this form cannot pass to its backward.
    """
    _refuse_dropout("memory_efficient_attention_forward_requires_grad", p)
    return _attend(query, key, value, attn_bias, p, scale, output_dtype)


def memory_efficient_attention_backward(
    grad: torch.Tensor,
    output: torch.Tensor,
    lse: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
) -> tuple[torch.Tensor, ...]:
    """Gradients of query, key and value; the forward is repeated, so ``output`` and ``lse`` are ignored.

    Raises:
        NotImplementedError: dropout.
    """
    _refuse_dropout("memory_efficient_attention_backward", p)
    with torch.enable_grad():
        q, k, v = (each.detach().requires_grad_() for each in (query, key, value))
        found, _ = _attend(q, k, v, attn_bias, p, scale, None)
    return torch.autograd.grad(found, (q, k, v), grad)


def memory_efficient_attention_partial(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over a part of the keys and its log-sum-exp, for :func:`merge_attentions`; float32 by default.

    Raises:
        NotImplementedError: dropout.
    """
    _refuse_dropout("memory_efficient_attention_partial", p)
    kind = output_dtype or torch.promote_types(query.dtype, torch.float32)
    return _attend(query, key, value, attn_bias, p, scale, kind)


def merge_attentions(
    attn_split: _Tensors, lse_split: _Tensors, write_lse: bool = True, output_dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Combine attention over disjoint parts of the keys into attention over all.

    Args:
        attn_split: results of the parts [batch, queries, (groups,) heads, features], a list or stacked.
        lse_split: their log-sum-exps [batch, (groups,) heads, queries].
        write_lse: also return the log-sum-exp.
        output_dtype: dtype of the result; None is that of the parts.

    Returns:
        (attention, log-sum-exp or None).
    """
    parts, sums = torch.stack(tuple(attn_split)), torch.stack(tuple(lse_split))
    total = sums.logsumexp(0)
    weights = (sums - total.masked_fill(total == -torch.inf, 0)).exp().movedim(-1, 2).unsqueeze(-1)
    merged = (parts * weights).sum(0).to(output_dtype or parts.dtype)
    return merged, total if write_lse else None


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float = 1e-6) -> torch.Tensor:
    """:func:`isthmus.ops.rms_norm`."""
    return norm.rms_norm(x, weight, eps)


def rms_norm_add(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None, eps: float = 1e-6
) -> torch.Tensor:
    """Add ``y`` to ``x`` in place and return the normalized sum."""
    return norm.rms_norm(x.add_(y), weight, eps)


def scaled_index_add(
    input: torch.Tensor,
    index: torch.Tensor,
    source: torch.Tensor,
    scaling: torch.Tensor | None = None,
    alpha: float = 1.0,
) -> torch.Tensor:
    """Add ``alpha * scaling * source`` to the entries ``index`` of ``input``, in place.

    Args:
        input: [batch, tokens, features].
        index: [entries], unique.
        source: [entries, tokens, features].
        scaling: [features], or None.
        alpha: factor.
    """
    # Gradients are rounded once, as by xFormers' kernels.
    wide = torch.promote_types(source.dtype, torch.float32)
    scaled = source.to(wide) if scaling is None else source.to(wide) * scaling.to(wide)
    return input.index_add_(0, index, (scaled * alpha).to(input.dtype))


def index_select_cat(sources: Sequence[torch.Tensor], indices: Sequence[torch.Tensor]) -> torch.Tensor:
    """Selected rows of each source [rows, features], flattened and concatenated."""
    return torch.cat([source[index.long()].flatten() for source, index in zip(sources, indices, strict=True)])


def _refuse_dropout(name: str, p: float) -> None:
    if p:
        raise NotImplementedError(f"{name}: dropout is not supported; call memory_efficient_attention")


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: Any,
    p: float,
    scale: float | None,
    output_dtype: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in the shape of the query, and the log-sum-exp [batch, heads, queries], with groups if given."""
    if query.dim() not in (3, 4, 5) or not query.dim() == key.dim() == value.dim():
        shapes = ", ".join(str(tuple(each.shape)) for each in (query, key, value))
        raise ValueError(
            f"memory_efficient_attention: query, key and value must all have 3, 4 or 5 dimensions; got {shapes}"
        )
    if key.dtype == torch.int32:
        raise NotImplementedError("memory_efficient_attention: quantized keys and values are not supported")
    given, heads = query.shape, query.shape[2:-1]
    if query.shape[2:-1] != key.shape[2:-1]:
        raise ValueError(
            f"memory_efficient_attention: query has heads {tuple(heads)} and key {tuple(key.shape[2:-1])}; "
            "expand key and value"
        )
    q, k, v = (each.reshape(*each.shape[:2], -1, each.shape[-1]) for each in (query, key, value))
    settings = _settings(bias, q, k)
    if isinstance(settings.get("bias"), torch.Tensor):
        settings["bias"] = _four_dimensions(settings["bias"], len(heads))
    if "lengths" in settings:
        if q.shape[0] != 1:
            raise ValueError(
                f"memory_efficient_attention: {type(bias).__name__} needs a batch size of 1, got {q.shape[0]}"
            )
        q, k, v = (each.squeeze(0) for each in (q, k, v))
    out, lse = attend(q, k, v, scale=scale, dropout_p=p, **settings)
    out = out.reshape(*given[:-1], value.shape[-1])
    return out if output_dtype is None else out.to(output_dtype), lse.reshape(
        given[0], *(heads or (1,)), given[1]
    )


def _settings(bias: Any, query: torch.Tensor, key: torch.Tensor) -> dict[str, Any]:
    """Keyword arguments of :func:`attend` for a bias."""
    if bias is None:
        return {}
    if isinstance(bias, torch.Tensor):
        if not bias.is_floating_point():
            raise ValueError(
                f"memory_efficient_attention: attn_bias is {bias.dtype}; it is added to the scores, so use 0 and -inf"
            )
        return {"bias": bias}
    name = type(bias).__name__
    if name == "LocalAttentionFromBottomRightMask":
        return {"left": bias.window_left, "right": bias.window_right}
    if name not in _CAUSAL and name != "BlockDiagonalMask":
        if name.startswith("Paged") or not hasattr(bias, "materialize"):
            raise NotImplementedError(f"memory_efficient_attention: attn_bias {name} is not supported")
        shape = (query.shape[0], 1, query.shape[1], key.shape[1])
        return {"bias": bias.materialize(shape, query.dtype, query.device)}
    found: dict[str, Any] = {}
    if name in _CAUSAL:
        found |= {"right": 0, "top_left": _CAUSAL[name]}
        window = getattr(bias, "_window_size", None)
        found["left"] = None if window is None else window - 1
    if name == "LowerTriangularMaskWithTensorBias":
        found["bias"] = bias._bias
    if name.startswith("BlockDiagonal"):
        q, k = bias.q_seqinfo, bias.k_seqinfo
        starts = (each.seqstart.to(query.device) for each in (q, k))
        found["lengths"] = (*starts, q.max_seqlen, k.max_seqlen)
    return found


def _four_dimensions(bias: torch.Tensor, head_dimensions: int) -> torch.Tensor:
    """A bias [batch, (groups, heads,) queries, keys] as [batch, heads, queries, keys]."""
    if head_dimensions == 0 and bias.dim() == 3:
        return bias.unsqueeze(1)
    return bias.flatten(1, 2) if head_dimensions == 2 and bias.dim() == 5 else bias
