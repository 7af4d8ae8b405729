"""vLLM's Triton kernel that every model needs, in PyTorch's operators, for chips without a Triton backend."""

from __future__ import annotations

from typing import Any

import torch


def register() -> None:
    """Let vLLM call it in place of its own."""
    from vllm.triton_utils.dispatcher import register_kernels

    register_kernels({"vllm.v1.worker.block_table.ComputeSlotMappingKernel.kernel": slot_mapping})


def slot_mapping(
    num_tokens: int, max_num_tokens: int, query_start_loc: torch.Tensor, positions: torch.Tensor,
    block_table: torch.Tensor, block_table_stride: int, slots: torch.Tensor, KV_CACHE_BLOCK_SIZE: int,
    TOTAL_CP_WORLD_SIZE: int, TOTAL_CP_RANK: int, CP_KV_CACHE_INTERLEAVE_SIZE: int, PAD_ID: int, BLOCK_SIZE: int,
    **options: Any,
) -> None:  # fmt: skip
    """Write the row of the cache for each token, [max_num_tokens], by its position and the blocks of its request.

    Raises:
        NotImplementedError: the context is divided among ranks.
    """
    if TOTAL_CP_WORLD_SIZE != 1:
        raise NotImplementedError("isthmus: context parallelism needs a chip with a Triton backend")
    tokens = torch.arange(num_tokens, device=positions.device, dtype=query_start_loc.dtype)
    requests = (tokens[:, None] >= query_start_loc[1:]).sum(1).clamp(max=block_table.shape[0] - 1)
    where = positions[:num_tokens]
    blocks = block_table[requests, where // KV_CACHE_BLOCK_SIZE].to(slots.dtype)
    torch.add(blocks * KV_CACHE_BLOCK_SIZE, where % KV_CACHE_BLOCK_SIZE, out=slots[:num_tokens])
    slots[num_tokens:max_num_tokens].fill_(PAD_ID)
