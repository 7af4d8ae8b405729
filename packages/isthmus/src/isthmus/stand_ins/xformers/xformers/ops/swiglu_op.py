"""SwiGLU block of xFormers: two projections, ``silu(first) * second``, and a third projection."""

import torch
import torch.nn.functional as F
from torch import nn

from isthmus import ops

_Bias = torch.Tensor | None


def swiglu(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: _Bias,
    w2: torch.Tensor,
    b2: _Bias,
    w3: torch.Tensor,
    b3: _Bias,
    *,
    op: object = None,
) -> torch.Tensor:
    """``linear(silu(linear(x, w1, b1)) * linear(x, w2, b2), w3, b3)``.

    Args:
        x: [..., features].
        w1: [hidden, features].
        b1: [hidden], or None.
        w2: like ``w1``.
        b2: like ``b1``.
        w3: [output features, hidden].
        b3: [output features], or None.
        op: ignored.

    Raises:
        ValueError: the weights do not fit together.
    """
    if w1.dim() != 2 or w1.shape != w2.shape or w3.dim() != 2 or w3.shape[1] != w2.shape[0]:
        shapes = ", ".join(str(tuple(each.shape)) for each in (w1, w2, w3))
        raise ValueError(f"swiglu: weights must be (h, i), (h, i) and (o, h); got {shapes}")
    return F.linear(ops.swiglu(F.linear(x, w1, b1), F.linear(x, w2, b2)), w3, b3)


class SwiGLU(nn.Module):
    """:func:`swiglu` with its weights.

    Args:
        in_features: features of the input.
        hidden_features: features of the two projections.
        out_features: features of the output; None is ``in_features``.
        bias: whether the projections have a bias.
        _pack_weights: whether the first two projections are one layer ``w12``, else ``w1`` and ``w2``.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        bias: bool = True,
        *,
        _pack_weights: bool = True,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.hidden_features = hidden_features or in_features
        self.out_features = out_features or in_features
        self.w12: nn.Linear | None = None
        if _pack_weights:
            self.w12 = nn.Linear(in_features, 2 * self.hidden_features, bias=bias)
        else:
            self.w1 = nn.Linear(in_features, self.hidden_features, bias=bias)
            self.w2 = nn.Linear(in_features, self.hidden_features, bias=bias)
        self.w3 = nn.Linear(self.hidden_features, self.out_features, bias=bias)
        self.op: object = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the block to [..., in_features]."""
        hidden = ops.swiglu(self.w12(x)) if self.w12 is not None else ops.swiglu(self.w1(x), self.w2(x))
        return self.w3(hidden)
