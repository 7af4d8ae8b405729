"""The largest rank of each tensor argument and result, from the definitions of the operators.

A mistake that needs more dimensions than a tensor can have is not planted.
"""

from __future__ import annotations

import fnmatch
from functools import cache

ANY = 8
# Patterns of operators, arguments and results ("*" for all), rank. The first row that matches counts.
_ROWS: tuple[tuple[str, str, int], ...] = (
    ("aten::_foreach_*.Tensor", "other", 0),
    ("aten::fill_.Tensor", "value", 0),
    ("*", "grad_scale found_inf inv_scale state_steps steps norm total_weight growth_tracker", 0),
    ("*", "rng alibi_slopes cu_seqlens_q cu_seqlens_k sizes rows", 1),
    ("*", "running_mean running_var save_mean save_invstd rowscale layerscale vec", 1),
    ("aten::_amp_update_scale_", "*", 0),
    ("aten::mv aten::histc aten::_pdist_forward aten::linspace aten::arange* aten::randperm", "out", 1),
    ("isthmus::row_products isthmus::unpad_gen_attention_mask isthmus::unpad_*_matmul", "out", 1),
    ("aten::eye* aten::embedding_dense_backward aten::nll_loss_backward isthmus::unpad_seqlen", "out", 2),
    ("isthmus::pad_seqlen isthmus::cross_entropy_backward", "out", 3),
    ("isthmus::linear_cross_entropy", "grad_hidden grad_weight", 2),
    ("aten::native_layer_norm*", "*", ANY),
    ("isthmus::attention* aten::_scaled_dot*", "lse logsumexp", 3),
    ("isthmus::attention* aten::_scaled_dot*", "*", 4),
    ("aten::*batch_norm* aten::native_group_norm*", "weight bias", 1),
    ("isthmus::*norm*", "weight bias", 1),
    ("aten::native_group_norm*", "mean rstd", 2),
    ("aten::*batch_norm* aten::native_group_norm*", "*", 5),
    ("aten::convolution", "bias", 1),
    ("aten::convolution*", "*", 5),
    ("aten::index_select aten::index_add", "index", 1),
    ("isthmus::linear_cross_entropy", "hidden weight", 2),
    ("isthmus::linear_cross_entropy", "*", 1),
    ("isthmus::cross_entropy*", "logits", 3),
    ("isthmus::cross_entropy*", "*", 2),
    ("aten::nll_loss*", "self", 2),
    ("aten::nll_loss*", "*", 1),
    ("aten::embedding*", "weight", 2),
    ("isthmus::gather_rows isthmus::scatter_rows", "scale", 1),
    ("isthmus::grouped_matmul*", "weight", 3),
    ("isthmus::*_rows isthmus::row_products isthmus::grouped_matmul*", "*", 2),
    ("isthmus::rotary*", "positions", 2),
    ("isthmus::rotary*", "cos sin", 3),
    ("isthmus::rotary*", "*", 4),
    ("isthmus::scaled_masked_softmax*", "*", 4),
    ("isthmus::unpad_softmax*", "*", 1),
    ("isthmus::unpad_seqlen", "*", 3),
    ("isthmus::pad_seqlen isthmus::unpad_strided_batch_matmul", "*", 2),
    ("isthmus::unpad_gen_attention_mask", "*", 4),
    ("aten::mm aten::mv aten::addmm aten::_pdist_forward", "*", 2),
    ("aten::dot", "*", 1),
    ("aten::bmm aten::baddbmm aten::col2im aten::*_pad1d", "*", 3),
    ("aten::*pool2d* aten::*_pad2d aten::upsample* aten::grid_sampler_2d aten::im2col", "*", 4),
    ("aten::*pool3d* aten::*_pad3d", "*", 5),
)


@cache
def largest_rank(operator: str, argument: str) -> int:
    """Return the largest rank that an argument or a result of an operator can have."""
    for patterns, arguments, rank in _ROWS:
        named = arguments == "*" or argument in arguments.split()
        if named and any(fnmatch.fnmatchcase(operator, pattern) for pattern in patterns.split()):
            return rank
    return ANY
