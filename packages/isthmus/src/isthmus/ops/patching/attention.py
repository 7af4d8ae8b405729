"""transformers' ``sdpa`` attention, computed by isthmus.ops."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from isthmus.ops.attention import attend


def sdpa(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replacement for ``sdpa_attention_forward``, fused also with grouped key heads, masks and dropout.

    Calls with a position bias, a paged cache or a softcap use the original.
    """

    @functools.wraps(original)
    def forward(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        special = any(others.get(name) is not None for name in ("position_bias", "cache", "softcap"))
        if special or others.get("output_attentions"):
            settings = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **others}
            return original(module, query, key, value, attention_mask, **settings)
        queries = query.shape[2]
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        causal = queries > 1 and attention_mask is None and causal
        if causal:  # only the beginning of a new static cache is filled
            key, value = key[:, :, :queries], value[:, :, :queries]
        mask, bias = None, attention_mask
        if bias is not None and bias.dtype == torch.bool:  # True marks visible keys
            mask, bias = ~bias, None
        out, _ = attend(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            mask=mask,
            bias=bias,
            scale=scaling,
            right=0 if causal else None,
            dropout_p=dropout,
        )
        return out.contiguous(), None

    return forward
