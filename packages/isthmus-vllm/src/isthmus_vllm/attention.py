"""The attention backend: keys and values in vLLM's paged cache, read in place by ``isthmus.ops.paged_attention``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.kv_cache_interface import KVCacheLayout

from isthmus import ops


class ChipAttentionBackend(AttentionBackend):
    """Capabilities of the chip's attention, as vLLM asks for them."""

    forward_includes_kv_cache_update = False
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float32, torch.bfloat16, torch.float16]
    supported_kv_cache_dtypes: ClassVar[list[Any]] = ["auto", "float16", "bfloat16", "fp8", "fp8_e4m3"]

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(1)]

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        """Layers, blocks, tokens of a block, heads, features of key and value."""
        return (KVCacheLayout.LBNHC,)

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        """All types: encoders attend over the keys of the step, decoders over the cache."""
        return True

    @staticmethod
    def get_impl_cls() -> type[ChipAttention]:
        return ChipAttention

    @staticmethod
    def get_builder_cls() -> type[ChipMetadataBuilder]:
        return ChipMetadataBuilder


@dataclass
class ChipMetadata(AttentionMetadata):
    """Metadata of a step, shared by the layers.

    Attributes:
        tokens: number of queries, without padding.
        starts: int32 [requests + 1], first query of each request.
        lengths: int32 [requests], keys of each request.
        block_table: int32 [requests, blocks].
        slot_mapping: int64 [tokens], row of the cache for each new key; -1 for none.
        longest_query: upper bound of the queries of a request.
        longest_key: upper bound of the keys of a request.
        causal: whether a query sees only keys at its position and before.
    """

    tokens: int
    starts: torch.Tensor
    lengths: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    longest_query: int
    longest_key: int
    causal: bool


class ChipMetadataBuilder(AttentionMetadataBuilder[ChipMetadata]):
    """Passes on the tensors that vLLM keeps for the step; a graph may capture them."""

    supports_update_block_table = True

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    @classmethod
    def get_cudagraph_support(cls, vllm_config: Any, kv_cache_spec: Any) -> AttentionCGSupport:
        device = torch.accelerator.current_accelerator()
        cache = torch.empty(1, 1, 1, 8, dtype=vllm_config.model_config.dtype, device=device)
        ends, numbers = (
            torch.empty(2, dtype=torch.int32, device=device),
            torch.empty(1, dtype=torch.int32, device=device),
        )
        chosen = ops.which("paged_attention", cache[0], cache, cache, numbers[None], ends, numbers, 1, 1)
        # The others read the lengths of the sequences on the host.
        is_captured = chosen.implementation in ("kernel", "triton", "cpu")
        return AttentionCGSupport.ALWAYS if is_captured else AttentionCGSupport.NEVER

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> ChipMetadata:
        common = common_attn_metadata
        requests = common.num_reqs
        return ChipMetadata(
            common.num_actual_tokens, common.query_start_loc[: requests + 1], common.seq_lens[:requests],
            common.block_table_tensor[:requests], common.slot_mapping, common.max_query_len, common.max_seq_len,
            bool(common.causal),
        )  # fmt: skip

    def update_block_table(
        self, metadata: ChipMetadata, blk_table: torch.Tensor, slot_mapping: torch.Tensor
    ) -> ChipMetadata:
        return replace(metadata, block_table=blk_table[: len(metadata.lengths)], slot_mapping=slot_mapping)


class ChipAttention(AttentionImpl[ChipMetadata]):
    """The attention of one layer."""

    def __init__(
        self, num_heads: int, head_size: int, scale: float, num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None, sliding_window: int | None = None, kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None, attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None, sinks: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype, self.kv_sharing_target_layer_name = kv_cache_dtype, kv_sharing_target_layer_name
        self.is_quantized = kv_cache_dtype.startswith("fp8")
        self.alibi_slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)
        self.softcap = logits_soft_cap or 0.0
        self.sinks = sinks
        self.has_cache = attn_type in (AttentionType.DECODER, AttentionType.ENCODER_DECODER)
        before = -1 if sliding_window is None else sliding_window - 1
        self.window = (before, 0 if self.has_cache and before >= 0 else before)

    def do_kv_cache_update(
        self,
        layer: Any,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        if self.has_cache:
            ops.cache_write(key, value, *self._split(kv_cache), slot_mapping, **self._scales(layer))

    def _split(self, kv_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of the keys and the values, [blocks, block size, heads, features]."""
        rows = (kv_cache.view(torch.float8_e4m3fn) if self.is_quantized else kv_cache).transpose(1, 2)
        return rows[..., : self.head_size], rows[..., self.head_size :]

    def _scales(self, layer: Any) -> dict[str, torch.Tensor]:
        return {"key_scale": layer._k_scale, "value_scale": layer._v_scale} if self.is_quantized else {}

    def forward(
        self, layer: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
        attn_metadata: ChipMetadata | None, output: torch.Tensor, output_scale: Any = None,
        output_block_scale: Any = None,
    ) -> torch.Tensor:  # fmt: skip
        """Attend with the queries of a step, [tokens, heads, features], into ``output``."""
        meta = attn_metadata
        if meta is None:  # memory is being measured
            return output.fill_(0)
        slopes = self._slopes(query.device)
        if not self.has_cache:
            tokens = meta.tokens
            found: Any = ops.flash_attn_varlen_func(
                query[:tokens], key[:tokens], value[:tokens], meta.starts, meta.starts, meta.longest_query,
                meta.longest_query, 0.0, self.scale, meta.causal, self.window, self.softcap, slopes,
            )  # fmt: skip
            output[:tokens].copy_(found)
            return output
        return ops.paged_attention(
            query, *self._split(kv_cache), meta.block_table, meta.starts, meta.lengths, meta.longest_query,
            meta.longest_key, scale=self.scale, causal=meta.causal, window=self.window, softcap=self.softcap,
            alibi_slopes=slopes, sinks=self.sinks, out=output, **self._scales(layer),
        )  # fmt: skip

    def _slopes(self, device: torch.device) -> torch.Tensor | None:
        if self.alibi_slopes is not None and self.alibi_slopes.device != device:
            self.alibi_slopes = self.alibi_slopes.to(device)
        return self.alibi_slopes
