"""RMSNorm."""

import torch

from isthmus import ops


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """:func:`isthmus.ops.rms_norm`."""
    return ops.rms_norm(x, weight, epsilon)


class RMSNorm(ops.RMSNorm):
    """:class:`isthmus.ops.RMSNorm` with flash-attn's arguments.

    Args:
        hidden_size: size of the last dimension.
        eps: added to the mean.
        device: device of the weight.
        dtype: dtype of the weight.
    """

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(hidden_size, eps, device=device, dtype=dtype)
