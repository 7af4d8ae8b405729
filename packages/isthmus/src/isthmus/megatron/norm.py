"""LayerNorm and RMSNorm for Megatron's local layers, with sequence parallelism."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from isthmus.ops.norm import normalize


class Norm(nn.Module):
    """LayerNorm or RMSNorm of the last dimension.

    The parameters are marked ``sequence_parallel``, so that Megatron sums their gradients over the tensor-parallel
    ranks.

    Args:
        config: Megatron's TransformerConfig: normalization, sequence_parallel, layernorm_zero_centered_gamma.
        hidden_size: features.
        eps: added to the variance.

    Raises:
        ValueError: a normalization other than LayerNorm and RMSNorm.
    """

    # Megatron-core from 0.18 on checks whether the norm adds the residual itself.
    returns_residual = False

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__()
        if config.normalization not in ("LayerNorm", "RMSNorm"):
            raise ValueError(f"normalization is {config.normalization!r}; it must be LayerNorm or RMSNorm")
        self.eps, self.hidden_size = eps, hidden_size
        self.is_rms = config.normalization == "RMSNorm"
        self.is_zero_centered = bool(config.layernorm_zero_centered_gamma)
        start = torch.zeros if self.is_zero_centered else torch.ones
        self.weight = nn.Parameter(start(hidden_size))
        self.bias = None if self.is_rms else nn.Parameter(torch.zeros(hidden_size))
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalize [..., hidden_size]; the result has the input's dtype."""
        return normalize(input, self.weight, self.bias, self.eps, self.is_rms, self.is_zero_centered)


def instead_of_torch_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replacement for ``WrappedTorchNorm.__new__`` that returns :class:`Norm` where it applies."""

    def new(
        cls: type,
        config: Any,
        hidden_size: int,
        eps: float = 1e-5,
        persist_layer_norm: bool = False,
        zero_centered_gamma: bool = False,
        normalization: str = "LayerNorm",
    ) -> Any:
        if config.normalization in ("LayerNorm", "RMSNorm"):
            return Norm(config, hidden_size, eps)
        return original(cls, config, hidden_size, eps, persist_layer_norm, zero_centered_gamma, normalization)

    return new


def instead_of_apex_norm(_: Any) -> Callable[..., Any]:
    """Replacement for ``FusedLayerNorm.__new__`` that returns :class:`Norm` for RMSNorm."""

    def new(cls: type, config: Any, hidden_size: int, eps: float = 1e-5, *args: Any, **kwargs: Any) -> Any:
        if config.normalization == "RMSNorm":
            return Norm(config, hidden_size, eps)
        return object.__new__(cls)

    return new
