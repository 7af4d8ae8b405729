"""Weights that depend only on a parameter's name, so that every parallelism starts from the same model."""

from __future__ import annotations

import re
import zlib

import torch

_LAYER = re.compile(r"(?<=layers\.)\d+")
_EXPERT = re.compile(r"(?<=local_experts\.)\d+")


def full_weight(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """The full weight, float32 on the host: 1 for norms, 0 for biases, else normal with deviation 0.02."""
    if name.endswith("bias"):
        return torch.zeros(shape)
    if "norm" in name:
        return torch.ones(shape)
    generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
    return torch.randn(shape, generator=generator) * 0.02


def global_name(name: str, first_layer: int, first_expert: int) -> str:
    """The name of this rank's parameter in the whole model."""
    name = _LAYER.sub(lambda match: str(int(match[0]) + first_layer), name)
    return _EXPERT.sub(lambda match: str(int(match[0]) + first_expert), name)


@torch.no_grad()
def initialize(
    model: torch.nn.Module,
    first_layer: int,
    first_expert: int,
    tensor: tuple[int, int],
    tied: bool,
    seed: int,
) -> None:
    """Initialize every parameter of a rank with its part of the full weight.

    Args:
        model: GPTModel of megatron-core, before it is wrapped.
        first_layer: number of its first layer in the whole model.
        first_expert: number of its first expert in each layer.
        tensor: rank and size of the tensor-parallel group.
        tied: the output layer's weight is the embedding's.
        seed: of the weights.
    """
    for name, parameter in model.named_parameters():
        whole_name = global_name(name, first_layer, first_expert)
        if tied and whole_name == "output_layer.weight":  # the last stage's copy
            whole_name = "embedding.word_embeddings.weight"
        parameter.copy_(_part(whole_name, parameter, tensor, seed))


def _part(name: str, parameter: torch.nn.Parameter, tensor: tuple[int, int], seed: int) -> torch.Tensor:
    rank, size = tensor
    if not getattr(parameter, "tensor_model_parallel", False) or size == 1:
        return full_weight(name, tuple(parameter.shape), seed)
    dim, stride = parameter.partition_dim, parameter.partition_stride  # type: ignore[attr-defined]
    shape = list(parameter.shape)
    shape[dim] *= size
    # A gated layer holds its part of the gate, then its part of the rest: stride 2.
    chunks = full_weight(name, tuple(shape), seed).chunk(size * stride, dim)
    return torch.cat(chunks[rank::size], dim)
