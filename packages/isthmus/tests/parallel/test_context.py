"""PyTorch's context parallelism on four ranks: around a ring or over an all-gather, forward and backward."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import _attention, context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard, set_rotate_method
from torch.nn import functional

from tests.helpers.parallel.rank import Rank, difference, tolerance
from tests.helpers.parallel.ranks import checks_of

SHAPE = (2, 3, 32, 8)  # batch, heads, sequence, features


def inputs(rank: Rank, dtype: torch.dtype) -> list[Tensor]:
    """Query, key, value and a gradient, the same on all ranks."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SHAPE, generator=generator).to(rank.device, dtype) for _ in range(4)]


def attend(query: Tensor, key: Tensor, value: Tensor, gradient: Tensor, *, is_causal: bool) -> list[Tensor]:
    """Output and the three gradients."""
    leaves = [tensor.detach().requires_grad_() for tensor in (query, key, value)]
    backends = torch.nn.attention.SDPBackend
    with torch.nn.attention.sdpa_kernel([backends.FLASH_ATTENTION, backends.OVERRIDEABLE]):
        output = functional.scaled_dot_product_attention(*leaves, is_causal=is_causal)
    output.backward(gradient)
    return [output.detach(), *(leaf.grad for leaf in leaves)]


def compared(rank: Rank, rotation: str, *, is_causal: bool, dtype: torch.dtype = torch.float32) -> float:
    whole = inputs(rank, dtype)
    expected = attend(*whole, is_causal=is_causal)
    mesh = init_device_mesh("chip", (rank.size,), mesh_dim_names=("cp",))
    set_rotate_method(rotation)
    balanced = _attention._cp_options.enable_load_balance
    _attention._cp_options.enable_load_balance = is_causal
    try:
        with context_parallel(mesh, buffers=whole, buffer_seq_dims=[2] * 4):
            assert whole[0].shape[2] == SHAPE[2] // rank.size
            found = attend(*whole, is_causal=is_causal)
            parts = context_parallel_unshard(mesh, found, [2] * 4)
    finally:
        _attention._cp_options.enable_load_balance = balanced
    return difference(parts, expected)


@tolerance(1e-6)
def causal_over_all_gather(rank: Rank) -> float:
    return compared(rank, "allgather", is_causal=True)


@tolerance(1e-6)
def causal_around_a_ring(rank: Rank) -> float:
    return compared(rank, "alltoall", is_causal=True)


@tolerance(2e-6)
def causal_of_the_fused_operator(rank: Rank) -> float:
    torch.chip.set_fused_attention(True)
    try:
        return max(compared(rank, rotation, is_causal=True) for rotation in ("alltoall", "allgather"))
    finally:
        torch.chip.set_fused_attention(False)


@tolerance(2e-6)  # one process alone is up to 8e-7 from float64, by the vector unit of the CPU
def every_position_around_a_ring(rank: Rank) -> float:
    return compared(rank, "alltoall", is_causal=False)


@tolerance(2e-6)  # one process alone is up to 8e-7 from float64, by the vector unit of the CPU
def every_position_over_all_gather(rank: Rank) -> float:
    return compared(rank, "allgather", is_causal=False)


@tolerance(2e-2)
def in_bfloat16(rank: Rank) -> float:
    return compared(rank, "alltoall", is_causal=True, dtype=torch.bfloat16)


@tolerance(0)
def attention_elsewhere_is_as_before(rank: Rank) -> float:
    whole = inputs(rank, torch.float32)
    before = attend(*whole, is_causal=True)
    compared(rank, "alltoall", is_causal=True)
    return difference(attend(*whole, is_causal=True), before)


ranks, test_ranks = checks_of(globals(), 4)
