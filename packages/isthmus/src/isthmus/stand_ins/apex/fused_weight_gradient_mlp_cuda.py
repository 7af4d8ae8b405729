"""apex's accumulation of the weight gradient of a linear layer."""

import torch


def wgrad_gemm_accum_fp32(input: torch.Tensor, d_output: torch.Tensor, d_weight: torch.Tensor) -> None:
    """Add ``d_output.T @ input`` to the gradient of the weight, computed in the gradient's dtype.

    Args:
        input: [..., in features].
        d_output: [..., out features].
        d_weight: [out features, in features], updated in place.
    """
    rows, columns = (each.flatten(0, -2).to(d_weight.dtype) for each in (d_output, input))
    d_weight.addmm_(rows.t(), columns)


def wgrad_gemm_accum_fp16(input: torch.Tensor, d_output: torch.Tensor, d_weight: torch.Tensor) -> None:
    """:func:`wgrad_gemm_accum_fp32` for a gradient in float16 or bfloat16."""
    wgrad_gemm_accum_fp32(input, d_output, d_weight)
