"""The type that Megatron asks parameters for."""

from __future__ import annotations

import torch


class Float8Tensor(torch.Tensor):
    """A tensor in FP8; there is none without Transformer Engine itself."""
