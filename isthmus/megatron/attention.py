"""Megatron's local attention by the fused operator, over the ranks of a context-parallel group as well."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from isthmus.megatron import context_parallel
from isthmus.ops.attention import attend


def over_context_ranks(original: Callable[..., None]) -> Callable[..., None]:
    """``DotProductAttention.__init__``, which refuses context parallelism: here it is computed."""

    @functools.wraps(original)
    def init(
        self: Any,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
    ) -> None:
        single = config
        if config.context_parallel_size > 1:
            single = copy.copy(config)
            single.context_parallel_size = 1
        original(
            self, single, layer_number, attn_mask_type, attention_type, attention_dropout, softmax_scale,
            cp_comm_type, pg_collection,
        )  # fmt: skip
        self.config = config
        if config.context_parallel_size > 1:
            context_parallel.check(config, cp_comm_type, self.attention_dropout.p)
            self.isthmus_cp_comm_type = cp_comm_type or "p2p"
            self.isthmus_cp_group = _context_group(pg_collection)

    return init


def _context_group(pg_collection: Any) -> Any:
    group = getattr(pg_collection, "cp", None)
    if group is None:
        from megatron.core import parallel_state

        group = parallel_state.get_context_parallel_group()
    return group


def fused(original: Callable[..., Any]) -> Callable[..., Any]:
    """``DotProductAttention.forward`` by :func:`isthmus.ops.attention.attend`; what that lacks by the original."""

    @functools.wraps(original)
    def forward(
        self: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        attn_mask_type: Any = None,
        attention_bias: torch.Tensor | None = None,
        packed_seq_params: Any = None,
    ) -> torch.Tensor:
        if self.config.context_parallel_size > 1:
            _refuse(self, attention_mask, attention_bias, packed_seq_params)
            return _over_ranks(self, query, key, value)
        if packed_seq_params is not None or attention_bias is not None or self.softmax_offset is not None:
            return original(
                self, query, key, value, attention_mask, attn_mask_type, attention_bias, packed_seq_params
            )
        return _here(self, query, key, value, attention_mask)

    return forward


def _scale(module: Any) -> float:
    """Scores are scaled before and, with --apply-query-key-layer-scaling, again inside the softmax."""
    return float(module.softmax_scale * (module.scale_mask_softmax.scale or 1.0))


def _is_causal(module: Any) -> bool:
    return module.attn_mask_type.name in ("causal", "padding_causal")


def _here(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """[tokens, batch, heads, features] of one rank to [tokens, batch, heads * features]."""
    window = module.scale_mask_softmax.window_size
    settings: dict[str, Any] = {}
    if window is not None:  # takes the place of any mask, as in Megatron
        settings = {"left": window[0], "right": window[1]}
    elif mask is not None:
        settings = {"mask": mask}
    elif _is_causal(module) and query.shape[0] > 1:
        settings = {"right": 0}
    if module.training and module.attention_dropout.p:
        settings["dropout_p"] = module.attention_dropout.p
    q, k, v = (each.transpose(0, 1) for each in (query, key, value))
    scale = _scale(module)
    if "dropout_p" in settings and not module.config.sequence_parallel:
        from megatron.core import tensor_parallel

        with tensor_parallel.get_cuda_rng_tracker().fork():
            out, _ = attend(q, k, v, scale=scale, **settings)
    else:
        out, _ = attend(q, k, v, scale=scale, **settings)
    return out.transpose(0, 1).flatten(2).contiguous()


def _over_ranks(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    compute = context_parallel.COMPUTED_BY[module.isthmus_cp_comm_type]
    return compute(query, key, value, module.isthmus_cp_group, _scale(module)).flatten(2).contiguous()


def _refuse(module: Any, mask: Any, bias: Any, packed: Any) -> None:
    if mask is not None:
        raise ValueError(
            "context parallelism takes no attention mask: attention is causal over whole sequences; "
            "give --no-create-attention-mask-in-dataloader"
        )
    if bias is not None or packed is not None or module.softmax_offset is not None:
        raise ValueError("context parallelism has no attention bias, packed sequences or softmax offset")
    if not _is_causal(module):
        raise ValueError(f"context parallelism is for causal attention, not {module.attn_mask_type.name}")
