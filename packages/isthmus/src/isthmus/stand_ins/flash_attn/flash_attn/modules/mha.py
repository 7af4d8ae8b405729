"""flash-attn's attention modules."""

import math
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from isthmus.ops.attention import attend
from isthmus.ops.flash_attn import FlashCrossAttention

from .. import flash_attn_qkvpacked_func, flash_attn_varlen_qkvpacked_func, flash_attn_with_kvcache
from ..layers.rotary import RotaryEmbedding

__all__ = [
    "MHA", "CrossAttention", "FlashCrossAttention", "FlashSelfAttention", "SelfAttention", "get_alibi_slopes",
]  # fmt: skip

_HIDDEN = -10000.0  # added to the scores of hidden keys by the modules that are not Flash


def get_alibi_slopes(nheads: int) -> list[float]:
    """Slopes of ALiBi (Press et al., 2021) for a number of heads."""
    power = 2 ** math.floor(math.log2(nheads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return slopes + [2 ** (-4 * (2 * i + 1) / power) for i in range(nheads - power)]


class FlashSelfAttention(FlashCrossAttention):
    """Self-attention of a packed projection.

    Args:
        causal: hide the keys after a query's position, unless the call overrides it.
        softmax_scale: factor of the scores; None is ``1 / sqrt(features)``.
        attention_dropout: dropout probability in training.
        window_size: visible keys (before, after) a query's position; -1 is all.
        alibi_slopes: float32, [heads] or [batch, heads].
        deterministic: ignored; the backward pass is always deterministic.
    """

    def __init__(
        self,
        causal: bool = False,
        softmax_scale: float | None = None,
        attention_dropout: float = 0.0,
        window_size: tuple[int, int] = (-1, -1),
        alibi_slopes: torch.Tensor | None = None,
        deterministic: bool = False,
    ) -> None:
        super().__init__(causal, softmax_scale, attention_dropout, alibi_slopes, window_size, deterministic)

    def forward(  # type: ignore[override]
        self,
        qkv: torch.Tensor,
        causal: bool | None = None,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: int | None = None,
    ) -> torch.Tensor:
        """Attend.

        Args:
            qkv: [batch, length, 3, heads, features], or with ``cu_seqlens`` [tokens, 3, heads, features].
            causal: overrides the module's.
            cu_seqlens: cumulative lengths, int32 [batch + 1].
            max_seqlen: maximum length.

        Returns:
            The shape of ``qkv`` without the 3.

        Raises:
            ValueError: ``cu_seqlens`` without ``max_seqlen``.
        """
        if cu_seqlens is not None and max_seqlen is None:
            raise ValueError("FlashSelfAttention: cu_seqlens needs max_seqlen")
        options = (
            self.attention_dropout if self.training else 0.0, self.softmax_scale,
            self.causal if causal is None else causal, self.window_size, 0.0, self.alibi_slopes,
        )  # fmt: skip
        if cu_seqlens is None or max_seqlen is None:
            out = flash_attn_qkvpacked_func(qkv, *options)
        else:
            out = flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, *options)
        assert isinstance(out, torch.Tensor)
        return out


class CrossAttention(nn.Module):
    """Attention of q over kv with a mask of keys.

    Args:
        causal: hide the keys after a query's position, unless the call overrides it.
        softmax_scale: factor of the scores; None is ``1 / sqrt(features)``.
        attention_dropout: dropout probability in training.
    """

    def __init__(
        self, causal: bool = False, softmax_scale: float | None = None, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.causal = causal
        self.softmax_scale = softmax_scale
        self.drop = nn.Dropout(attention_dropout)

    def forward(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        causal: bool | None = None,
        key_padding_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attend; the last query is aligned with the last key that the mask keeps.

        Args:
            q: [batch, queries, heads, features].
            kv: [batch, keys, 2, key heads, features].
            causal: overrides the module's.
            key_padding_mask: bool [batch, keys], True for keys to keep.

        Returns:
            [batch, queries, heads, features].
        """
        k, v = kv.unbind(2)
        count = None if key_padding_mask is None else key_padding_mask.sum(-1)[:, None, None, None]
        return self._attend(q, k, v, causal, key_padding_mask, count)

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool | None, kept: torch.Tensor | None,
        count: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Attend; ``kept`` masks the keys, and the last query is aligned with key ``count``, [batch, 1, 1, 1]."""
        causal = self.causal if causal is None else causal
        bias = None
        if kept is not None:
            bias = torch.where(kept, 0.0, _HIDDEN)[:, None, None, :]
        if causal:
            row, column = (torch.arange(each.shape[1], device=q.device) for each in (q, k))
            last = k.shape[1] if count is None else count
            future = torch.where(column > row[:, None] + last - q.shape[1], _HIDDEN, 0.0)
            future = future if future.dim() == 4 else future[None, None]
            bias = future if bias is None else bias + future
        dropout = self.drop.p if self.training else 0.0
        return attend(q, k, v, bias=bias, scale=self.softmax_scale, dropout_p=dropout)[0]


class SelfAttention(CrossAttention):
    """Self-attention of a packed projection with a mask of keys; arguments like :class:`CrossAttention`."""

    def forward(  # type: ignore[override]
        self, qkv: torch.Tensor, causal: bool | None = None, key_padding_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Attend; ``qkv`` is [batch, length, 3, heads, features]."""
        q, k, v = qkv.unbind(2)
        return self._attend(q, k, v, causal, key_padding_mask)


class MHA(nn.Module):
    """Multi-head attention with its projections.

    Args:
        embed_dim: features of input and output.
        num_heads: number of heads.
        num_heads_kv: number of key heads; None is ``num_heads``.
        cross_attn: project the keys of another input, by ``Wq`` and ``Wkv`` instead of ``Wqkv``.
        qkv_proj_bias: whether the first projections have a bias.
        out_proj_bias: whether the last projection has a bias.
        dropout: dropout probability of the weights in training.
        softmax_scale: factor of the scores; None is ``1 / sqrt(features)``.
        causal: hide the keys after a query's position.
        layer_idx: index of the layer in a cache, for generation.
        dwconv: not supported.
        rotary_emb_dim: number of elements of a head to rotate; 0 is none.
        rotary_emb_base: of the angles.
        rotary_emb_scale_base: of :class:`RotaryEmbedding`.
        rotary_emb_interleaved: of :class:`RotaryEmbedding`.
        use_alibi: add ALiBi's bias; needs ``use_flash_attn``.
        window_size: visible keys (before, after) a query's position; needs ``use_flash_attn``.
        fused_bias_fc: ignored.
        use_flash_attn: accept packed sequences; otherwise a mask of keys.
        return_residual: also return the input.
        checkpointing: recompute the attention in the backward.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Raises:
        NotImplementedError: ``dwconv``.
        ValueError: arguments that exclude each other.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_heads_kv: int | None = None,
        cross_attn: bool = False,
        qkv_proj_bias: bool = True,
        out_proj_bias: bool = True,
        dropout: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        layer_idx: int | None = None,
        dwconv: bool = False,
        rotary_emb_dim: int = 0,
        rotary_emb_base: float = 10000.0,
        rotary_emb_scale_base: float | None = None,
        rotary_emb_interleaved: bool = False,
        use_alibi: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        fused_bias_fc: bool = False,
        use_flash_attn: bool = False,
        return_residual: bool = False,
        checkpointing: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if dwconv:
            raise NotImplementedError("MHA: dwconv=True is not supported; omit it")
        if not use_flash_attn and (use_alibi or window_size != (-1, -1)):
            raise ValueError("MHA: use_alibi and window_size need use_flash_attn=True")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.num_heads_kv = num_heads if num_heads_kv is None else num_heads_kv
        if embed_dim % num_heads or num_heads % self.num_heads_kv:
            raise ValueError(
                f"MHA: embed_dim {embed_dim} must be a multiple of num_heads {num_heads}, and that of num_heads_kv "
                f"{self.num_heads_kv}"
            )
        if cross_attn and rotary_emb_dim:
            raise ValueError("MHA: rotary_emb_dim is for self-attention; omit cross_attn")
        self.head_dim = embed_dim // num_heads
        self.cross_attn, self.causal, self.layer_idx = cross_attn, causal, layer_idx
        self.rotary_emb_dim, self.use_flash_attn = rotary_emb_dim, use_flash_attn
        self.return_residual, self.checkpointing = return_residual, checkpointing
        if rotary_emb_dim:
            self.rotary_emb = RotaryEmbedding(
                rotary_emb_dim, rotary_emb_base, rotary_emb_interleaved, rotary_emb_scale_base, device
            )
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        kv_dim = 2 * self.head_dim * self.num_heads_kv
        if cross_attn:
            self.Wq = nn.Linear(embed_dim, embed_dim, bias=qkv_proj_bias, **factory)
            self.Wkv = nn.Linear(embed_dim, kv_dim, bias=qkv_proj_bias, **factory)
        else:
            self.Wqkv = nn.Linear(embed_dim, embed_dim + kv_dim, bias=qkv_proj_bias, **factory)
        inner: dict[str, Any] = {
            "causal": causal, "softmax_scale": softmax_scale, "attention_dropout": dropout,
        }  # fmt: skip
        if use_flash_attn:
            slopes = torch.tensor(get_alibi_slopes(num_heads), device=device) if use_alibi else None
            inner |= {"alibi_slopes": slopes, "window_size": window_size}
        self.inner_attn = (FlashSelfAttention if use_flash_attn else SelfAttention)(**inner)
        self.inner_cross_attn = (FlashCrossAttention if use_flash_attn else CrossAttention)(**inner)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=out_proj_bias, **factory)

    def allocate_inference_cache(
        self, batch_size: int, max_seqlen: int, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """A cache for generation: [batch_size, max_seqlen, 2, key heads, features], not initialized."""
        weight = self.out_proj.weight
        shape = (batch_size, max_seqlen, 2, self.num_heads_kv, self.head_dim)
        return torch.empty(shape, dtype=dtype or weight.dtype, device=weight.device)

    def forward(
        self,
        x: torch.Tensor,
        x_kv: torch.Tensor | None = None,
        key_padding_mask: torch.Tensor | None = None,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: int | None = None,
        mixer_subset: Any = None,
        inference_params: Any = None,
        **kwargs: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Attend.

        Args:
            x: [batch, length, embed_dim], or with ``cu_seqlens`` [tokens, embed_dim].
            x_kv: input of the keys, for ``cross_attn``; None is ``x``.
            key_padding_mask: bool [batch, length], True for keys to keep; without ``use_flash_attn``.
            cu_seqlens: cumulative lengths, int32 [batch + 1]; with ``use_flash_attn``.
            max_seqlen: maximum length.
            mixer_subset: index of the queries to compute, for ``cross_attn``.
            inference_params: cache for generation, with ``seqlen_offset``, ``lengths_per_sample``, ``max_seqlen``,
                ``max_batch_size``, ``batch_size_offset`` and ``key_value_memory_dict``.
            kwargs: passed to the inner attention.

        Returns:
            A tensor like ``x``; with ``return_residual`` also ``x``.

        Raises:
            ValueError: arguments that exclude each other.
        """
        wrong = [
            (cu_seqlens is not None and (max_seqlen is None or not self.use_flash_attn or self.rotary_emb_dim > 0),
             "cu_seqlens needs max_seqlen and use_flash_attn=True, and excludes rotary_emb_dim"),
            (key_padding_mask is not None and self.use_flash_attn, "key_padding_mask needs use_flash_attn=False"),
            (inference_params is not None and (cu_seqlens is not None or key_padding_mask is not None),
             "inference_params excludes cu_seqlens and key_padding_mask"),
            (not self.cross_attn and (x_kv is not None or mixer_subset is not None),
             "x_kv and mixer_subset need cross_attn=True"),
        ]  # fmt: skip
        for is_wrong, why in wrong:
            if is_wrong:
                raise ValueError(f"MHA: {why}")
        if self.use_flash_attn:
            kwargs |= {"cu_seqlens": cu_seqlens, "max_seqlen": max_seqlen}
        else:
            kwargs |= {"key_padding_mask": key_padding_mask}
        if not self.cross_attn and self.num_heads_kv == self.num_heads:
            context = self._packed(
                self.Wqkv(x).unflatten(-1, (3, self.num_heads, -1)), inference_params, kwargs
            )
        else:
            context = self._separate(x, x_kv, mixer_subset, inference_params, kwargs)
        out = self.out_proj(context.flatten(-2))
        return (out, x) if self.return_residual else out

    def _packed(self, qkv: torch.Tensor, params: Any, kwargs: dict[str, Any]) -> torch.Tensor:
        """Self-attention with as many key heads as heads."""
        if self.rotary_emb_dim:
            qkv = self.rotary_emb(qkv, **_positions(params))
        if params is not None:
            return self._generate(qkv[:, :, 0], qkv[:, :, 1:], params)
        return self._run(self.inner_attn, qkv, **kwargs)

    def _separate(
        self, x: torch.Tensor, x_kv: torch.Tensor | None, subset: Any, params: Any, kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Cross-attention, or self-attention with fewer key heads."""
        if self.cross_attn:
            q = self.Wq(x if subset is None else x[:, subset])
            kv = self.Wkv(x if x_kv is None else x_kv)
        else:
            q, kv = self.Wqkv(x).split([self.embed_dim, 2 * self.head_dim * self.num_heads_kv], -1)
        q, kv = q.unflatten(-1, (self.num_heads, -1)), kv.unflatten(-1, (2, self.num_heads_kv, -1))
        if self.rotary_emb_dim:
            q, kv = self.rotary_emb(q.clone(), kv.clone(), **_positions(params))  # views of one projection
        if params is not None:
            return self._generate(q, kv, params)
        return self._run(self.inner_cross_attn, q, kv, **kwargs)

    def _run(self, attention: nn.Module, *tensors: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        if self.checkpointing:
            return checkpoint(attention, *tensors, use_reentrant=False, **kwargs)
        return attention(*tensors, **kwargs)

    def _generate(self, q: torch.Tensor, kv: torch.Tensor, params: Any) -> torch.Tensor:
        """Append keys and values to the cache, and attend over it."""
        if self.layer_idx is None:
            raise ValueError("MHA: generation needs layer_idx")
        first = params.seqlen_offset
        if first and self.use_flash_attn:
            cache = params.key_value_memory_dict[self.layer_idx][: q.shape[0]]
            lengths = params.lengths_per_sample
            slopes: Any = self.inner_cross_attn.alibi_slopes
            out = flash_attn_with_kvcache(
                q, cache[:, :, 0], cache[:, :, 1], kv[:, :, 0], kv[:, :, 1],
                cache_seqlens=first if lengths is None else lengths[: q.shape[0]],
                softmax_scale=self.inner_cross_attn.softmax_scale, causal=self.causal,
                alibi_slopes=slopes,
            )  # fmt: skip
            assert isinstance(out, torch.Tensor)
            return out
        if self.layer_idx not in params.key_value_memory_dict:
            params.key_value_memory_dict[self.layer_idx] = self.allocate_inference_cache(
                params.max_batch_size, params.max_seqlen, kv.dtype
            )
        start, end = params.batch_size_offset, first + kv.shape[1]
        cache = params.key_value_memory_dict[self.layer_idx][start : start + kv.shape[0]]
        cache[:, first:end] = kv
        return self.inner_cross_attn(q, cache[:, :end])


def _positions(params: Any) -> dict[str, Any]:
    """Arguments of the rotary embedding for the state of a generation."""
    if params is None:
        return {}
    lengths = params.lengths_per_sample
    offset = params.seqlen_offset if lengths is None else lengths
    return {"seqlen_offset": offset, "max_seqlen": params.max_seqlen}
