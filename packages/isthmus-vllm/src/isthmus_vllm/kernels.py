"""vLLM's Triton kernels: the one that every model needs, in PyTorch's operators, and the choice of that of top-p."""

from __future__ import annotations

from typing import Any

import torch

from isthmus_common.patches import Scope

TOP_P = "vllm.v1.sample.ops.topk_topp_triton"
_scope = Scope("vllm")


def register() -> None:
    """Let vLLM call :func:`slot_mapping` in place of its own kernel, on chips without a Triton backend."""
    from vllm.triton_utils.dispatcher import register_kernels

    register_kernels({"vllm.v1.worker.block_table.ComputeSlotMappingKernel.kernel": slot_mapping})


def apply_top_p_once() -> None:
    """Let one kernel apply top-p, whatever the number of rows.

    For few rows vLLM has a second kernel. The first leaves rows to it where the platform is CUDA, but it takes them
    where the device is called so, as under ``isthmus run``: both then apply top-p to the same rows.
    """
    _scope.replace(f"{TOP_P}._SPLIT_MAX_BATCH", lambda _: 0, "two kernels would apply top-p to the same rows")


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
