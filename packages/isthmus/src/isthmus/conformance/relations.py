"""Laws that hold between calls of an operator, whatever its inputs, and the operators of each.

- ``law-permutation``, ``law-split``: rows of a batch in another order, or in two calls (:data:`BATCHES`);
- ``law-scaling``: linear operators and powers of two (:data:`SCALED`);
- ``law-direct``: sums, products, convolution and attention against direct sums of small integers (:data:`DIRECT`);
- ``law-repeated``: idempotent operators and involutions (:data:`REPEATED`);
- ``law-unsorted``: results in no order against those in order (:data:`UNSORTED`);
- ``law-monotonic``: functions that never decrease or increase (:data:`MONOTONIC`);
- ``law-gradient``: backward operators against directional differences of forward ones (:data:`GRADIENTS`);
- ``property-batch-invariance``: whether the bits of a row depend on the rest of its batch. Reported, and a failure
  where the driver declares ``batch_invariant``.

:mod:`isthmus.conformance.relation_checks` checks them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from isthmus.conformance import direct


class Rows(NamedTuple):
    """The batch of an operator: the dimension that is its index in arguments and in results, and its size's argument.

    An argument of another size there is the same for all rows.
    """

    arguments: Mapping[str, int]
    results: Mapping[str, int]
    size: str = ""


def _rows(arguments: str, results: str = "out", axis: int = 0, to: int | None = None, size: str = "") -> Rows:
    end = axis if to is None else to
    return Rows(dict.fromkeys(arguments.split(), axis), dict.fromkeys(results.split(), end), size)


# Operators along an argument ``dim``, each row of the other dimensions by itself; and those of a batch.
ALONG = frozenset(
    f"aten::{name}"
    for name in (
        "_softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data cumsum "
        "sum.dim_IntList mean.dim amax amin max.dim min.dim argmax argmin any.dim linalg_vector_norm "
        "var.correction prod.dim_int sort sort.stable topk"
    ).split()
)
BATCHES: dict[str, tuple[Rows, ...]] = {
    "aten::mm": (_rows("self"), _rows("mat2", axis=1)),
    "aten::bmm": (_rows("self mat2"), _rows("self", axis=1), _rows("mat2", axis=2)),
    "aten::mv": (_rows("self"),),
    "aten::addmm": (_rows("mat1 self"),),
    "aten::baddbmm": (_rows("batch1 batch2 self"),),
    "aten::embedding": (_rows("indices"),),
    "aten::native_layer_norm": (_rows("input", "out0 out1 out2"),),
    "aten::native_group_norm": (_rows("input", "out0 out1 out2", size="N"),),
    "aten::convolution": (_rows("input"),),
    "aten::max_pool2d_with_indices": (_rows("self", "out0 out1"),),
    "aten::avg_pool2d": (_rows("self"),),
    "aten::_adaptive_avg_pool2d": (_rows("self"),),
    "aten::upsample_nearest2d": (_rows("self"),),
    "aten::upsample_bilinear2d": (_rows("self"),),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (
        _rows("query key value attn_mask", "output logsumexp"),
    ),
    "isthmus::rms_norm": (_rows("input", "out rstd"),),
    "isthmus::add_rms_norm": (_rows("input residual", "out sum rstd"),),
    "isthmus::cross_entropy": (_rows("logits target", "loss lse"),),
}
# Linear operators: the arguments that are scaled together; all results scale, or only those named after "->".
SCALED: dict[str, tuple[str, ...]] = {
    f"aten::{name}": tuple(texts.split(" | "))
    for name, texts in {
        **dict.fromkeys("neg abs relu sum mean amax amin max min cumsum sum.dim_IntList mean.dim".split(), "self"),
        **dict.fromkeys("tril triu flip roll avg_pool2d mul.Scalar div.Scalar".split(), "self"),
        **dict.fromkeys("max.dim min.dim sort sort.stable topk".split(), "self -> values"),
        **dict.fromkeys("add.Tensor sub.Tensor maximum minimum where.self".split(), "self other"),
        **dict.fromkeys("mm bmm".split(), "self | mat2"),
        **dict.fromkeys("silu_backward gelu_backward sigmoid_backward tanh_backward".split(), "grad_output"),
        **dict.fromkeys(
            "_softmax_backward_data _log_softmax_backward_data embedding_dense_backward threshold_backward "
            "mse_loss_backward nll_loss_backward avg_pool2d_backward convolution_backward".split(),
            "grad_output",
        ),
        "mul.Tensor": "self | other",
        "div.Tensor": "self",
        "mv": "self | vec",
        "dot": "self | tensor",
        "addmm": "self mat1",
        "baddbmm": "self batch1",
        "embedding": "weight",
        "gather": "self",
        "index_select": "self",
        "scatter_add": "self src",
        "index_add": "self source",
        "cat": "tensors",
        "lerp.Scalar": "self end",
        "convolution": "input bias | weight bias",
        "native_layer_norm_backward": "grad_out",
    }.items()
} | {
    "isthmus::rotary": ("query key",),
    "isthmus::swiglu_backward": ("grad",),
    "isthmus::rms_norm_backward": ("grad grad_sum",),
}  # fmt: skip
# f(f(x)) is f(x), or x where False.
REPEATED: dict[str, bool] = {
    **{
        f"aten::{name}": True
        for name in "abs ceil floor round trunc sign relu clamp clamp_min clamp_max hardtanh tril triu sort "
        "sort.stable".split()
    },
    **{f"aten::{name}": False for name in "neg flip bitwise_not".split()},
}
# Values and indices along ``dim``, in any order where ``sorted`` is false.
UNSORTED = frozenset(("aten::topk",))
# 1 where the function never decreases, -1 where it never increases.
MONOTONIC: dict[str, int] = {
    **{
        f"aten::{name}": 1
        for name in "exp exp2 expm1 log log2 log10 log1p sqrt sigmoid tanh erf asin atan sinh asinh acosh atanh ceil "
        "floor trunc round sign relu".split()
    },
    **{f"aten::{name}": -1 for name in "neg acos rsqrt".split()},
}
# Sums of products, by the functions of :mod:`isthmus.conformance.direct`.
DIRECT: dict[str, Callable[..., Any]] = {
    "aten::sum": direct.sum_all,
    "aten::sum.dim_IntList": direct.sum_along,
    "aten::cumsum": direct.running_sum,
    "aten::mm": direct.product,
    "aten::bmm": direct.product,
    "aten::mv": direct.product,
    "aten::dot": direct.product,
    "aten::addmm": direct.added_product,
    "aten::baddbmm": direct.added_product,
    "aten::convolution": direct.convolution,
    "aten::_scaled_dot_product_flash_attention_for_cpu": direct.attention,
}


class Gradient(NamedTuple):
    """The gradient of a forward operator's first result with respect to one of its arguments.

    Attributes:
        forward: the operator.
        of: its argument.
        gradient: the argument of the backward operator that is the gradient of the result.
        results: arguments of the backward operator that are results of the forward one.
        result: the result of the backward operator that is the gradient of the argument.
        other: the argument of the backward operator that is the gradient of another result; without it here.
    """

    forward: str
    of: str = "self"
    gradient: str = "grad_output"
    results: Mapping[str, str] = {}
    result: str = "out"
    other: str = ""


GRADIENTS: dict[str, Gradient] = {
    "aten::silu_backward": Gradient("aten::silu"),
    "aten::gelu_backward": Gradient("aten::gelu"),
    "aten::sigmoid_backward": Gradient("aten::sigmoid", results={"output": "out"}),
    "aten::tanh_backward": Gradient("aten::tanh", results={"output": "out"}),
    "aten::_softmax_backward_data": Gradient("aten::_softmax", results={"output": "out"}),
    "aten::_log_softmax_backward_data": Gradient("aten::_log_softmax", results={"output": "out"}),
    "aten::native_layer_norm_backward": Gradient(
        "aten::native_layer_norm", "input", "grad_out", {"mean": "out1", "rstd": "out2"}, "out0"
    ),
    "aten::convolution_backward": Gradient("aten::convolution", "input", result="out0"),
    "aten::avg_pool2d_backward": Gradient("aten::avg_pool2d"),
    "aten::embedding_dense_backward": Gradient("aten::embedding", "weight"),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": Gradient(
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "query",
        "grad_out",
        {"out": "output", "logsumexp": "logsumexp"},
        "grad_query",
    ),
    "isthmus::rms_norm_backward": Gradient(
        "isthmus::rms_norm", "input", "grad", {"rstd": "rstd"}, "grad_input", "grad_sum"
    ),
    "isthmus::swiglu_backward": Gradient("isthmus::swiglu", "gate", "grad", result="grad_gate"),
    "isthmus::scaled_masked_softmax_backward": Gradient(
        "isthmus::scaled_masked_softmax", "input", "grad", {"out": "out"}
    ),
    "isthmus::cross_entropy_backward": Gradient(
        "isthmus::cross_entropy", "logits", "grad", {"lse": "lse"}, other="grad_lse"
    ),
}
