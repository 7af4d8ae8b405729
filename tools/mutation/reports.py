"""Publicly reported mistakes: kernels with the mistake of a report.

The list was fixed before the suite was tried on it; do not tune it to the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from isthmus.opset.library import HOST
from tools.mutation.kernel import Target
from tools.mutation.mutant import Mutant, Wrong
from tools.mutation.reported import (
    after,
    as_contiguous,
    before,
    beta_zero,
    biased_running_variance,
    clamp,
    computed,
    constant_seed,
    decoupled,
    empty_index_returns_early,
    floor_of_quotient,
    gelu_with_cancellation,
    ignored_are_counted,
    index_as_contiguous,
    last_of_equal,
    last_tap_of_groups,
    mean_by_count,
    negative_nan_first,
    never_tanh,
    norm_in_half,
    padded_with_zero,
    padding_row_kept,
    prior_content,
    put_without_adding,
    reduced_without_nan,
    stored_truncated,
    sum_in_float64,
    summed_in_half,
    truncating_division,
    uniform_where_masked,
    variance_cancels,
    variance_in_one_pass,
    without_nan,
)

MUTATION = "reported in public"


class Report(NamedTuple):
    """A mistake: operators to plant it in, its report (repository#number), class, what was wrong, the kernel."""

    operators: tuple[str, ...]
    source: str
    kind: str
    text: str
    wrong: Callable[[], Wrong]
    without: int = 0


def mutants(target: Target) -> Iterator[Mutant]:
    """Yield the mutants of an operator's kernel that have its reported mistakes."""
    for report in REPORTS:
        if target.name in report.operators:
            detail = f"{report.source}: {report.text}"
            yield Mutant(target.name, report.kind, MUTATION, detail, report.wrong, report.without)


_ADAM = "weight decay of _fused_adam follows the rule of AdamW"
REPORTS: tuple[Report, ...] = (
    Report(
        ("aten::neg", "aten::abs", "aten::sqrt"),
        "pytorch/pytorch#100764",
        "layout assumed",
        "a strided input is read as contiguous",
        before(lambda c: c.with_input(0, as_contiguous(c.inputs[0]))),
    ),
    Report(
        ("aten::baddbmm", "aten::addmm"),
        "pytorch/pytorch#187521",
        "special values",
        "beta = 0 propagates NaN of the input",
        computed(beta_zero),
    ),
    Report(
        ("aten::baddbmm",),
        "pytorch/pytorch#96037",
        "memory",
        "beta = 0 multiplies the prior output",
        lambda: prior_content,
    ),
    Report(
        ("aten::index_put",),
        "torch-spyre/torch-spyre#4411",
        "indexing",
        "only one of equal indices is accumulated",
        lambda: put_without_adding,
    ),
    Report(
        ("aten::_softmax",),
        "tenstorrent/tt-metal#56056",
        "special values",
        "a row of -inf becomes uniform instead of NaN",
        after(uniform_where_masked),
    ),
    Report(
        ("aten::maximum",),
        "pytorch/pytorch#143976",
        "special values",
        "NaN is not propagated",
        computed(without_nan(np.fmax)),
    ),
    Report(
        ("aten::minimum",),
        "pytorch/pytorch#143976",
        "special values",
        "NaN is not propagated",
        computed(without_nan(np.fmin)),
    ),
    Report(
        ("aten::amax", "aten::max"),
        "pytorch/pytorch#130295",
        "special values",
        "NaN is not propagated",
        computed(lambda x, *a: reduced_without_nan(np.fmax.reduce, x, *a)),
    ),
    Report(
        ("aten::clamp",), "pytorch/pytorch#120899", "special values", "NaN becomes the bound", computed(clamp)
    ),
    Report(
        ("aten::embedding_dense_backward",),
        "pytorch/pytorch#26302",
        "indexing",
        "the row of padding_idx gets a gradient",
        before(padding_row_kept),
    ),
    Report(
        ("aten::exp", "aten::sqrt", "aten::sigmoid"),
        "tenstorrent/tt-metal#57408",
        "accumulation",
        "bfloat16 is truncated",
        lambda: stored_truncated,
    ),
    Report(
        ("aten::floor_divide",),
        "pytorch/pytorch#43874",
        "formula",
        "the quotient is truncated",
        computed(truncating_division),
    ),
    Report(
        ("aten::div.Tensor_mode",),
        "pytorch/pytorch#189243",
        "special values",
        "inf // 1 is inf instead of NaN",
        lambda: floor_of_quotient,
    ),
    Report(("aten::_fused_adam_",), "flagos-ai/FlagGems#4988", "formula", _ADAM, lambda: decoupled),
    Report(
        ("aten::nll_loss_forward",),
        "pytorch/pytorch#31295",
        "formula",
        "a weighted mean is divided by the number of samples",
        after(mean_by_count),
    ),
    Report(
        ("aten::nll_loss_forward",),
        "pytorch/xla#896",
        "formula",
        "ignored samples are counted in the mean",
        after(ignored_are_counted),
    ),
    Report(
        ("aten::argmax",),
        "pytorch/pytorch#41998",
        "indexing",
        "the last of equal elements is found",
        computed(last_of_equal),
    ),
    Report(
        ("aten::native_layer_norm",),
        "pytorch/pytorch#190491",
        "accumulation",
        "variance as E[x^2] - E[x]^2 in float32",
        lambda: variance_in_one_pass,
    ),
    Report(
        ("aten::native_batch_norm",),
        "tenstorrent/tt-metal#45968",
        "accumulation",
        "variance as E[x^2] - E[x]^2 in float32",
        lambda: variance_cancels,
    ),
    Report(
        ("aten::native_batch_norm",),
        "tenstorrent/tt-metal#55438",
        "formula",
        "running_var takes the biased variance",
        lambda: biased_running_variance,
    ),
    Report(
        ("aten::max_pool2d_with_indices",),
        "pytorch/pytorch#33384",
        "formula",
        "padding counts as zero",
        after(padded_with_zero),
    ),
    Report(
        ("aten::sort", "aten::sort.stable"),
        "pytorch/pytorch#116567",
        "special values",
        "a NaN with the sign bit set sorts first",
        lambda: negative_nan_first,
    ),
    Report(
        ("aten::scatter.src", "aten::scatter.value"),
        "intel/intel-extension-for-pytorch#682",
        "memory",
        "an empty index returns before the input is copied",
        lambda: empty_index_returns_early,
    ),
    Report(
        ("aten::native_dropout",),
        "PaddlePaddle/Paddle#7796",
        "arguments ignored",
        "the same seed for every mask",
        lambda: constant_seed,
    ),
    Report(
        ("aten::convolution_backward",),
        "pytorch/pytorch#50042",
        "tail",
        "the last taps of strided groups are wrong",
        after(last_tap_of_groups),
    ),
    Report(
        ("aten::gelu",),
        "tenstorrent/tt-metal#56517",
        "accumulation",
        "1 + tanh(u) cancels for negative x",
        lambda: gelu_with_cancellation,
    ),
    Report(
        ("aten::gelu", "aten::gelu_backward"),
        "pytorch/pytorch#94529",
        "arguments ignored",
        "approximate is not part of the kernel's key",
        before(never_tanh),
    ),
    Report(
        ("aten::linalg_vector_norm", "aten::_foreach_norm.Scalar"),
        "facebookresearch/fairscale#263",
        "accumulation",
        "squares are summed in float16",
        lambda: norm_in_half,
    ),
    Report(
        ("aten::cumsum",),
        "numpy/numpy#24443",
        "accumulation",
        "float16 is summed in float16",
        lambda: summed_in_half,
    ),
    Report(
        ("aten::gather",),
        "flagos-ai/FlagGems#5746",
        "layout assumed",
        "an expanded index is read as contiguous",
        before(index_as_contiguous),
    ),
    Report(
        ("aten::mse_loss",),
        "pytorch/pytorch#125696",
        "layout assumed",
        "a strided input is read as contiguous",
        before(lambda c: c.with_input(0, as_contiguous(c.inputs[0]))),
    ),
    Report(
        ("aten::sum.dim_IntList",),
        "kszucs/marrow#112",
        "saturation",
        "int64 is summed in float64",
        lambda: sum_in_float64,
    ),
    Report(
        ("aten::copy_", "aten::mm"),
        "ROCm/MIOpen#3299",
        "memory",
        "works on the null stream instead of the caller's",
        lambda: lambda right, call: right(call),
        HOST,
    ),
)
