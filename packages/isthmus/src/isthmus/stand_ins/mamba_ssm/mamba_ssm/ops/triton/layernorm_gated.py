"""Normalizations with a gate."""

import torch
from torch import nn

from isthmus.ops.state_space import gated_norm as layernorm_fn

_Tensor = torch.Tensor | None

__all__ = ["LayerNorm", "RMSNorm", "layernorm_fn", "rms_norm_ref", "rmsnorm_fn"]


def rmsnorm_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: _Tensor,
    z: _Tensor = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    upcast: bool = True,
) -> torch.Tensor:
    """:func:`isthmus.ops.state_space.gated_norm` without the mean; ``upcast`` is ignored."""
    return layernorm_fn(x, weight, bias, z, eps, group_size, norm_before_gate, True)


rms_norm_ref = rmsnorm_fn


class LayerNorm(nn.Module):
    """LayerNorm in groups, with a gate.

    Args:
        hidden_size: size of the last dimension.
        eps: added to the variance.
        group_size: size of a group; None is ``hidden_size``.
        norm_before_gate: multiply by ``silu(z)`` after the normalization, not before.
        device: device of the parameters.
        dtype: dtype of the parameters.
    """

    is_rms_norm = False
    bias: nn.Parameter | None

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        group_size: int | None = None,
        norm_before_gate: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps, self.group_size, self.norm_before_gate = eps, group_size, norm_before_gate
        self.weight = nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        bias = None if self.is_rms_norm else nn.Parameter(torch.zeros_like(self.weight))
        self.register_parameter("bias", bias)

    def forward(self, x: torch.Tensor, z: _Tensor = None) -> torch.Tensor:
        """Normalize ``x`` with the gate ``z``."""
        options = (self.eps, self.group_size, self.norm_before_gate, self.is_rms_norm)
        return layernorm_fn(x, self.weight, self.bias, z, *options)


class RMSNorm(LayerNorm):
    """RMSNorm in groups, with a gate; arguments like :class:`LayerNorm`."""

    is_rms_norm = True
