"""flash-attn's attention modules, for packed projections."""

import torch

from isthmus.ops.flash_attn import FlashCrossAttention

from .. import flash_attn_qkvpacked_func, flash_attn_varlen_qkvpacked_func

__all__ = ["FlashCrossAttention", "FlashSelfAttention"]


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
