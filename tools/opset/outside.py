"""Operators of the core ATen set, or used by the models, that need no kernel, with reasons."""

_VIEW = "a view: the framework changes metadata"
_METADATA = "metadata: computed without a kernel"
_ALLOCATION = "allocation: no kernel runs"
_COPY = "an allocation and aten::copy_"
_FILL = "an allocation and aten::fill_.Scalar"
_DYNAMIC = "the shape of the result depends on values; kernels write to outputs of a known shape"

OUTSIDE: dict[str, str] = {
    **dict.fromkeys(
        "alias as_strided detach diagonal expand lift_fresh permute select.int slice.Tensor split.Tensor "
        "split_with_sizes squeeze.dim squeeze.dims t transpose.int unsqueeze view _unsafe_view".split(),
        _VIEW,
    ),
    **dict.fromkeys(
        "sym_size.int sym_numel sym_storage_offset sym_stride.int sym_is_contiguous resize_".split(),
        _METADATA,
    ),
    **dict.fromkeys("empty.memory_format empty_strided empty_like".split(), _ALLOCATION),
    **dict.fromkeys("_to_copy clone".split(), _COPY),
    **dict.fromkeys(
        "full full_like ones ones_like zeros zeros_like new_ones new_zeros scalar_tensor".split(), _FILL
    ),
    "arange": "aten::arange.start_step from 0",
    "_local_scalar_dense": "a copy of one element to the host",
    "var.dim": "aten::var.correction",
    "nonzero": _DYNAMIC,
    "rand": "an allocation and aten::uniform_",
    "randn": "an allocation and aten::normal_",
    "adaptive_avg_pool1d": "aten::_adaptive_avg_pool2d with an added dimension",
    "avg_pool1d": "aten::avg_pool2d with an added dimension",
    "upsample_bilinear2d.vec": "aten::upsample_bilinear2d with the computed size",
    "upsample_nearest2d.vec": "aten::upsample_nearest2d with the computed size",
    "_embedding_bag": "aten::index_select and aten::index_add; not used by the models",
    "_grouped_mm": "one matrix product per group; the host reads the group sizes",
}


def reason(overload: str) -> str | None:
    """Why an overload needs no kernel, or None if it does."""
    return OUTSIDE.get(overload.removeprefix("aten::"))
