"""A norm and a linear layer as one module."""

from typing import Any

import torch
from torch import nn

from isthmus.ops.norm import normalize

from .linear import Linear


class LayerNormLinear(Linear):
    """A norm of the last dimension and a linear layer; arguments as :class:`Linear`, and of the norm.

    Args:
        in_features: as in Linear.
        out_features: as in Linear.
        eps: added to the variance.
        normalization: ``"LayerNorm"`` or ``"RMSNorm"``.
        zero_centered_gamma: multiply by ``1 + weight`` in the norm.
        return_layernorm_output: must be False.

    Raises:
        ValueError: unknown norm, or an option that needs the real Transformer Engine.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        eps: float = 1e-5,
        *args: Any,
        normalization: str = "LayerNorm",
        zero_centered_gamma: bool = False,
        sequence_parallel: bool = False,
        **options: Any,
    ) -> None:
        if normalization not in ("LayerNorm", "RMSNorm"):
            raise ValueError(f"normalization is {normalization!r}; it must be LayerNorm or RMSNorm")
        self.eps, self.normalization = eps, normalization
        self.zero_centered_gamma = zero_centered_gamma
        super().__init__(in_features, out_features, sequence_parallel, *args, **options)

    def _make_norm(self, where: dict[str, Any]) -> None:
        start = torch.zeros if self.zero_centered_gamma else torch.ones
        self.layer_norm_weight = nn.Parameter(start(self.in_features, **where))
        self.layer_norm_bias = None
        if self.normalization == "LayerNorm":
            self.layer_norm_bias = nn.Parameter(torch.zeros(self.in_features, **where))
        for each in self.parameters():
            each.sequence_parallel = self.sequence_parallel  # type: ignore[attr-defined]

    def forward(
        self, inp: torch.Tensor, is_first_microbatch: bool | None = None, **options: Any
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]:
        """Map [tokens, ..., in features] to [tokens, ..., out features]; with ``return_bias`` also the bias."""
        is_rms = self.normalization == "RMSNorm"
        normed = normalize(
            inp, self.layer_norm_weight, self.layer_norm_bias, self.eps, is_rms, self.zero_centered_gamma
        )
        return super().forward(normed, is_first_microbatch, **options)
