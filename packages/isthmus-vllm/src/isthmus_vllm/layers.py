"""vLLM's layers by the fused operators of Isthmus."""

from __future__ import annotations

import torch
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

from isthmus import ops


@RMSNorm.register_oot(name="RMSNorm")
class ChipRMSNorm(RMSNorm):
    """RMSNorm, with the residual added in the same call."""

    def forward_oot(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Normalize x, [..., hidden], or the sum of x and residual, which is then returned as well."""
        if self.variance_size_override is not None:
            return self.forward_native(x, residual)
        weight = self.weight.data if self.has_weight else None
        if residual is None:
            return ops.rms_norm(x, weight, self.variance_epsilon)
        return ops.add_rms_norm(x, residual, weight, self.variance_epsilon)


@SiluAndMul.register_oot(name="SiluAndMul")
class ChipSiluAndMul(SiluAndMul):
    """SwiGLU of halves that lie side by side."""

    def forward_oot(self, x: torch.Tensor) -> torch.Tensor:
        """Return silu(first half) * second half, [..., features / 2]."""
        return ops.swiglu(x)


def _rotate(
    self: RotaryEmbedding, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Rotate query and key in place; RotaryEmbedding.forward_oot, also of the classes derived from it."""
    if key is None or positions.dim() > 1:
        return self.forward_native(positions, query, key)
    cos, sin = self._match_cos_sin_cache_dtype(query).chunk(2, -1)
    tokens = positions.shape[0]
    ops.rotary_qk(
        query.view(tokens, -1, self.head_size), key.view(tokens, -1, self.head_size), cos, sin,
        positions=positions, dim=self.rotary_dim, interleaved=not self.is_neox_style, inplace=True,
    )  # fmt: skip
    return query, key


RotaryEmbedding.forward_oot = _rotate
