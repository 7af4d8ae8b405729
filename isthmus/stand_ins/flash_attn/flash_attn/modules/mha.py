"""Attention over what a layer has projected, packed or padded, as modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .. import (
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)

__all__ = ["FlashCrossAttention", "FlashSelfAttention"]


class _Attention(nn.Module):
    """What both have.

    Args:
        causal: mask what lies ahead, unless the call says otherwise.
        softmax_scale: factor of the products; None is ``1 / sqrt(features)``.
        attention_dropout: probability, in training only.
        window_size: (left, right) of the sliding window; -1 is no limit.
        alibi_slopes: float32, [heads] or [batch, heads].
        deterministic: no effect: it always is.
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
        super().__init__()
        self.causal = causal
        self.softmax_scale = softmax_scale
        self.drop = nn.Dropout(attention_dropout)
        self.register_buffer("alibi_slopes", alibi_slopes, persistent=False)
        self.window_size = window_size
        self.deterministic = deterministic

    def _options(self, causal: bool | None) -> dict[str, Any]:
        return {
            "dropout_p": self.drop.p if self.training else 0.0,
            "softmax_scale": self.softmax_scale,
            "causal": self.causal if causal is None else causal,
            "window_size": self.window_size,
            "alibi_slopes": self.alibi_slopes,
        }


class FlashSelfAttention(_Attention):
    """Attention of a sequence with itself."""

    def forward(
        self,
        qkv: torch.Tensor,
        causal: bool | None = None,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: int | None = None,
    ) -> torch.Tensor:
        """Attend.

        Args:
            qkv: [batch, length, 3, heads, features], or with ``cu_seqlens`` [tokens, 3, heads, features].
            causal: instead of the module's.
            cu_seqlens: int32 [batch + 1], where each sequence begins in the tokens.
            max_seqlen: longest of them.

        Returns:
            qkv's shape without the 3.

        Raises:
            ValueError: cu_seqlens without max_seqlen.
        """
        options = self._options(causal)
        if cu_seqlens is None:
            return _only(flash_attn_qkvpacked_func(qkv, **options))
        if max_seqlen is None:
            raise ValueError("FlashSelfAttention: cu_seqlens goes with max_seqlen; give both")
        return _only(flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, **options))


class FlashCrossAttention(_Attention):
    """Attention of one sequence with another."""

    def forward(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        causal: bool | None = None,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: int | None = None,
        cu_seqlens_k: torch.Tensor | None = None,
        max_seqlen_k: int | None = None,
    ) -> torch.Tensor:
        """Attend.

        Args:
            q: [batch, length, heads, features], or with ``cu_seqlens`` [tokens, heads, features].
            kv: [batch, key length, 2, key heads, features], or [key tokens, 2, key heads, features].
            causal: instead of the module's.
            cu_seqlens: int32 [batch + 1], where each sequence of q begins.
            max_seqlen: longest of them.
            cu_seqlens_k: the same of kv.
            max_seqlen_k: the same of kv.

        Returns:
            q's shape.

        Raises:
            ValueError: cu_seqlens without what goes with it.
        """
        options = self._options(causal)
        if cu_seqlens is None:
            return _only(flash_attn_kvpacked_func(q, kv, **options))
        if cu_seqlens_k is None or max_seqlen is None or max_seqlen_k is None:
            raise ValueError(
                "FlashCrossAttention: cu_seqlens goes with max_seqlen, cu_seqlens_k and max_seqlen_k; give all"
            )
        return _only(
            flash_attn_varlen_kvpacked_func(
                q, kv, cu_seqlens, cu_seqlens_k, max_seqlen, max_seqlen_k, **options
            )
        )


def _only(result: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The functions return more than the tensor only where that is asked for, which it is not here."""
    assert isinstance(result, torch.Tensor)
    return result
