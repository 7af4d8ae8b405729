"""Weights in 8-bit floating point, multiplied by PyTorch's operators."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.kernels.linear import register_linear_kernel
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import FP8ScaledMMLinearKernel
from vllm.platforms import PlatformEnum


class ChipFP8LinearKernel(FP8ScaledMMLinearKernel):
    """Products with weights of one byte; activations keep their dtype, which loses less than quantizing them."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None

    @classmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]:
        """Scales may belong to a weight or to each of its rows."""
        group = c.weight_quant_key.scale.group_shape
        if group.is_per_tensor() or group.is_per_channel() or group.is_per_token():
            return True, None
        return False, "needs one scale, or one for each output"

    def apply_weights(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply x, [..., in features], by the weight, [in features, out features], and its scales."""
        weight, scale, *_ = self._get_layer_params(layer)
        y = (x @ weight.to(x.dtype)) * scale.view(-1).to(x.dtype)
        return y if bias is None else y + bias

    def apply_scaled_mm(self, **arguments: Any) -> torch.Tensor:
        raise NotImplementedError("isthmus: activations are not quantized")


register_linear_kernel(ChipFP8LinearKernel, PlatformEnum.OOT, "fp8")
