"""LayerNorm and RMSNorm."""

from typing import Any

import torch
from torch import nn

from isthmus.ops.norm import normalize

from .base import place, refuse_options


class _Norm(nn.Module):
    is_rms = False

    def __init__(
        self,
        normalized_shape: int | None = None,
        eps: float = 1e-5,
        sequence_parallel: bool | None = None,
        params_dtype: torch.dtype | None = None,
        zero_centered_gamma: bool = False,
        device: Any = "cuda",
        hidden_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        refuse_options(type(self).__name__, options)
        size = normalized_shape if normalized_shape is not None else hidden_size
        if size is None:
            raise ValueError(f"{type(self).__name__}: normalized_shape is required")
        self.eps, self.zero_centered_gamma = eps, zero_centered_gamma
        self.sequence_parallel = sequence_parallel
        start = torch.zeros if zero_centered_gamma else torch.ones
        where: dict[str, Any] = {"dtype": params_dtype, "device": place(device)}
        self.weight = nn.Parameter(start(size, **where))
        self.bias = None if self.is_rms else nn.Parameter(torch.zeros(size, **where))
        for parameter in self.parameters():
            parameter.sequence_parallel = bool(sequence_parallel)  # type: ignore[attr-defined]

    def reset_parameters(self) -> None:
        """Reset to the identity."""
        nn.init.constant_(self.weight, 0.0 if self.zero_centered_gamma else 1.0)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalize [..., size]."""
        return normalize(input, self.weight, self.bias, self.eps, self.is_rms, self.zero_centered_gamma)


class LayerNorm(_Norm):
    """Layer normalization of the last dimension.

    Args:
        normalized_shape: number of features.
        eps: added to the variance.
        sequence_parallel: tensor-parallel ranks have different tokens.
        params_dtype: dtype of the parameters; None is PyTorch's default.
        zero_centered_gamma: multiply by ``1 + weight``.
        device: device of the parameters.
        hidden_size: deprecated name of ``normalized_shape``.

    Raises:
        ValueError: an option that needs the real Transformer Engine.
    """


class RMSNorm(_Norm):
    """Root mean square normalization of the last dimension; arguments as :class:`LayerNorm`."""

    is_rms = True
