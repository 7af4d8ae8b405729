"""Megatron's local attention by the fused operator, with context parallelism."""

import copy
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from isthmus.ops import context_parallel
from isthmus.ops.attention import attend, packed_lengths


def over_context_ranks(original: Callable[..., None]) -> Callable[..., None]:
    """Replacement for ``DotProductAttention.__init__`` that accepts context parallelism."""

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
    """Replacement for ``DotProductAttention.forward`` by :func:`isthmus.ops.attention.attend`, where it applies."""

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
        is_packed = packed_seq_params is not None and packed_seq_params.qkv_format == "thd"
        if attention_bias is None and self.softmax_offset is None:
            if is_packed:
                return _attend_packed(self, query, key, value, attention_mask, packed_seq_params)
            return _attend_on_rank(self, query, key, value, attention_mask)
        if is_packed:
            raise ValueError("packed sequences do not support an attention bias or softmax offset")
        return original(
            self, query, key, value, attention_mask, attn_mask_type, attention_bias, packed_seq_params
        )

    return forward


def _scale(module: Any) -> float:
    """The total scale; --apply-query-key-layer-scaling scales again inside the softmax."""
    return float(module.softmax_scale * (module.scale_mask_softmax.scale or 1.0))


def _is_causal(module: Any) -> bool:
    return module.attn_mask_type.name in ("causal", "padding_causal")


def _attend_on_rank(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Attention of [tokens, batch, heads, features] on one rank; returns [tokens, batch, heads * features]."""
    settings = _window(module)
    if not settings and mask is not None:
        settings = {"mask": mask}
    elif not settings and _is_causal(module) and query.shape[0] > 1:
        settings = {"right": 0}
    q, k, v = (each.transpose(0, 1) for each in (query, key, value))
    return _attend(module, q, k, v, settings).transpose(0, 1).flatten(2).contiguous()


def _attend_packed(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, packed: Any
) -> torch.Tensor:
    """Attention of packed sequences [tokens, heads, features]; returns [tokens, heads * features]."""
    if mask is not None:
        raise ValueError(
            "packed sequences do not support an attention mask; pass --no-create-attention-mask-in-dataloader"
        )
    settings = _window(module)
    if not settings and _is_causal(module):
        settings = {"right": 0}
    settings["lengths"] = packed_lengths(
        (packed.cu_seqlens_q, packed.cu_seqlens_kv),
        (packed.cu_seqlens_q_padded, packed.cu_seqlens_kv_padded),
        (packed.max_seqlen_q, packed.max_seqlen_kv),
        settings.get("right"),
    )
    return _attend(module, query, key, value, settings).flatten(1)


def _window(module: Any) -> dict[str, Any]:
    """The sliding window, which replaces the mask, as in Megatron."""
    window = module.scale_mask_softmax.window_size
    return {} if window is None else {"left": window[0], "right": window[1]}


def _attend(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, settings: dict[str, Any]
) -> torch.Tensor:
    dropout = module.attention_dropout.p if module.training else 0.0
    with _random(module) if dropout else nullcontext():
        return attend(query, key, value, scale=_scale(module), dropout_p=dropout, **settings)[0]


def _random(module: Any) -> AbstractContextManager[None]:
    """RNG context of dropout: per rank with sequence parallelism, else shared by tensor-parallel ranks."""
    from megatron.core import tensor_parallel

    return nullcontext() if module.config.sequence_parallel else tensor_parallel.get_cuda_rng_tracker().fork()


def _over_ranks(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    kind, group = module.isthmus_cp_comm_type, module.isthmus_cp_group
    return context_parallel.over_ranks(kind, query, key, value, group, _scale(module)).flatten(2).contiguous()


def _refuse(module: Any, mask: Any, bias: Any, packed: Any) -> None:
    if mask is not None:
        raise ValueError(
            "context parallelism does not support an attention mask (attention is causal over whole sequences); "
            "pass --no-create-attention-mask-in-dataloader"
        )
    if bias is not None or packed is not None or module.softmax_offset is not None:
        raise ValueError(
            "context parallelism does not support an attention bias, packed sequences or softmax offset"
        )
    if not _is_causal(module):
        raise ValueError(f"context parallelism requires causal attention, got {module.attn_mask_type.name}")
