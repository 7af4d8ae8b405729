"""Attention by :func:`isthmus.ops.attention.attend`, with context parallelism."""

import math
from contextlib import nullcontext
from typing import Any

import torch

from isthmus.ops import context_parallel
from isthmus.ops.attention import attend, packed_lengths

from .module.base import TransformerEngineBaseModule, refuse_options

_MASKS = ("no_mask", "padding", "causal", "padding_causal", "causal_bottom_right", "arbitrary")
_PACKED = "thd"


class DotProductAttention(TransformerEngineBaseModule):
    """``softmax(query @ key.T * scale) @ value``.

    Args:
        num_attention_heads: heads of the whole layer.
        kv_channels: features of a head, or (of keys, of values).
        num_gqa_groups: key heads of the whole layer.
        attention_dropout: dropout probability of the weights in training.
        qkv_format: ``"sbhd"``, ``"bshd"`` or ``"thd"``.
        attn_mask_type: ``"no_mask"``, ``"padding"``, ``"causal"``, ``"padding_causal"``,
            ``"causal_bottom_right"`` or ``"arbitrary"``.
        window_size: visible keys (before, after) a query's position; -1 is all.
        sequence_parallel: dropout uses the current RNG state.
        tp_size: number of tensor-parallel ranks.
        get_rng_state_tracker: returns the tracker of the RNG state for dropout.
        tp_group: tensor-parallel group.
        layer_number: ignored.
        attention_type: ignored.
        cp_group: context-parallel group; tokens are split in zigzag.
        cp_global_ranks: ignored.
        cp_stream: ignored.
        cp_comm_type: ``"p2p"``, ``"all_gather"`` or ``"a2a"``.
        softmax_scale: None is ``1 / sqrt(features)``.

    Raises:
        ValueError: unknown mask type or communication scheme, or an option that needs the real Transformer Engine.
    """

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int | tuple[int, int],
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        window_size: tuple[int, int] | None = None,
        sequence_parallel: bool = False,
        tp_size: int = 1,
        get_rng_state_tracker: Any = None,
        tp_group: Any = None,
        layer_number: int | None = None,
        attention_type: str = "self",
        cp_group: Any = None,
        cp_global_ranks: list[int] | None = None,
        cp_stream: Any = None,
        cp_comm_type: str = "p2p",
        softmax_scale: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        refuse_options("DotProductAttention", options)
        self._join(tp_group, tp_size)
        self.num_attention_heads, self.num_gqa_groups = num_attention_heads, num_gqa_groups
        channels = kv_channels if isinstance(kv_channels, int) else kv_channels[0]
        self.hidden_size_per_attention_head_k = channels
        self.softmax_scale = 1 / math.sqrt(channels) if softmax_scale is None else softmax_scale
        self.attention_dropout, self.sequence_parallel = attention_dropout, sequence_parallel
        self.qkv_format, self.attn_mask_type, self.window_size = qkv_format, attn_mask_type, window_size
        self.get_rng_state_tracker = get_rng_state_tracker
        self.set_context_parallel_group(cp_group, cp_global_ranks, cp_stream, cp_comm_type)

    def set_context_parallel_group(
        self, cp_group: Any, cp_global_ranks: Any, cp_stream: Any, cp_comm_type: str = "p2p"
    ) -> None:
        """Set the context-parallel group; None disables context parallelism."""
        self.cp_group, self.cp_comm_type = cp_group, cp_comm_type
        if self._ranks() > 1:
            context_parallel.check(self, cp_comm_type, self.attention_dropout)

    def _ranks(self) -> int:
        return 1 if self.cp_group is None else torch.distributed.get_world_size(self.cp_group)

    def forward(
        self,
        query_layer: torch.Tensor,
        key_layer: torch.Tensor,
        value_layer: torch.Tensor,
        attention_mask: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None,
        qkv_format: str | None = None,
        cu_seqlens_q: torch.Tensor | None = None,
        cu_seqlens_kv: torch.Tensor | None = None,
        cu_seqlens_q_padded: torch.Tensor | None = None,
        cu_seqlens_kv_padded: torch.Tensor | None = None,
        max_seqlen_q: int | None = None,
        max_seqlen_kv: int | None = None,
        attn_mask_type: str | None = None,
        window_size: tuple[int, int] | None = None,
        core_attention_bias_type: str = "no_bias",
        core_attention_bias: torch.Tensor | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """Attend; the result has the queries' format with heads and features flattened.

        Raises:
            ValueError: unknown mask type, packed sequences without cumulative lengths, or with padding and without a
                causal mask, or an option that needs the real Transformer Engine.
        """
        refuse_options("DotProductAttention", options)
        kind = attn_mask_type or self.attn_mask_type
        if kind not in _MASKS:
            raise ValueError(f"attn_mask_type is {kind!r}; expected one of {', '.join(_MASKS)}")
        form = qkv_format or self.qkv_format
        if self._ranks() > 1:
            return self._over_ranks(query_layer, key_layer, value_layer, kind, form, core_attention_bias)
        settings = self._settings(kind, window_size or self.window_size)
        if form == _PACKED:
            if cu_seqlens_q is None or cu_seqlens_kv is None:
                raise ValueError("packed sequences need cu_seqlens_q and cu_seqlens_kv")
            settings["lengths"] = packed_lengths(
                (cu_seqlens_q, cu_seqlens_kv),
                (cu_seqlens_q_padded, cu_seqlens_kv_padded),
                (max_seqlen_q, max_seqlen_kv),
                settings.get("right"),
            )
        else:
            settings["mask"] = _mask(kind, attention_mask)
        if core_attention_bias_type == "post_scale_bias":
            settings["bias"] = core_attention_bias
        swapped = form == "sbhd"
        heads = (query_layer, key_layer, value_layer)
        q, k, v = (each.transpose(0, 1) if swapped else each for each in heads)
        with self._random(bool(settings.get("dropout_p"))):
            out, _ = attend(q, k, v, scale=self.softmax_scale, **settings)
        return (out.transpose(0, 1) if swapped else out).flatten(-2).contiguous()

    def _settings(self, kind: str, window: tuple[int, int] | None) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        if window is not None:
            settings = {"left": _limit(window[0]), "right": _limit(window[1])}
        if "causal" in kind:
            settings["right"] = 0
        settings["top_left"] = kind in ("causal", "padding_causal") and window is None
        if self.training and self.attention_dropout:
            settings["dropout_p"] = self.attention_dropout
        return settings

    def _random(self, drops: bool) -> Any:
        if not drops or self.sequence_parallel or self.get_rng_state_tracker is None:
            return nullcontext()
        return self.get_rng_state_tracker().fork()

    def _over_ranks(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kind: str, form: str, bias: Any
    ) -> torch.Tensor:
        if kind != "causal" or form == _PACKED or bias is not None:
            raise ValueError(
                f"context parallelism requires causal attention over whole sequences without bias; got mask type "
                f"{kind!r} and format {form!r}"
            )
        swapped = form == "bshd"
        q, k, v = (each.transpose(0, 1) if swapped else each for each in (query, key, value))
        ways = self.cp_comm_type or "p2p"
        out = context_parallel.over_ranks(ways, q, k, v, self.cp_group, self.softmax_scale)
        return (out.transpose(0, 1) if swapped else out).flatten(-2).contiguous()


def _limit(keys: int) -> int | None:
    return None if keys < 0 else keys


def _mask(kind: str, mask: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor | None:
    """Mask of hidden keys, [batch or 1, 1, queries or 1, keys]; None for causal types without padding."""
    if mask is None or kind not in ("padding", "padding_causal", "arbitrary"):
        return None
    if isinstance(mask, tuple):
        queries, keys = mask
        return queries.transpose(-1, -2) | keys
    return mask
