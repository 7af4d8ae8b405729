"""States what operators compute at the edges: rounding modes, NaN, ties, repeated indices, numbers out of a domain.

Only what the general rules of ``isthmus_ops.h`` and an operator's shape, dtype and tolerance leave open.
"""

from collections.abc import Iterator

from isthmus.opset.errors import NOT_EMPTY, ONE_DTYPE, PROBABILITIES
from isthmus.opset.indices import INDICES
from isthmus.opset.operator import ONLY_NAN, Operator
from isthmus.opset.schema import Schema

_FIRST = "the index is that of the first extremum; NaN is one"
_TRUE = "nonzero is true, NaN too"
_COMPARED = "false where either is NaN"
_RUNNING = "running statistics become (1 - momentum) * old + momentum * new, with the unbiased variance"
_BIASED = "the variance is divided by the count, without a correction"
_LARGEST = "NaN is larger than any number"
_BETA = "beta 0 ignores self, NaN in it too; products over a dimension of size 0 are 0"

# Keys are overloads, or names that stand for all overloads of an operator.
SEMANTICS: dict[str, str] = {
    "aten::add": "self + alpha * other",
    "aten::sub": "self - alpha * other",
    "aten::rsub": "other - alpha * self",
    "aten::div.Tensor": "true division: integers give floats",
    "aten::div.Scalar": "true division: integers give floats",
    "aten::div.Tensor_mode": "rounding_mode none: true division; trunc: to zero; floor: to minus infinity",
    "aten::div.Scalar_mode": "rounding_mode none: true division; trunc: to zero; floor: to minus infinity",
    "aten::floor_divide": "rounded to minus infinity",
    "aten::remainder": "with the sign of the divisor, as Python's %",
    "aten::fmod": "with the sign of the dividend, as C's fmod",
    "aten::pow": (
        "pow(x, 0) and pow(1, y) are 1, of NaN too; integers wrap, and of exponents below 0 only the powers of 1 and "
        "-1 are not 0"
    ),
    "aten::round": "halves to even",
    "aten::sign": "0 of NaN and of zeros",
    "aten::frac": "self - trunc(self); NaN of infinity",
    "aten::sqrt": "NaN below 0; -0 of -0",
    "aten::rsqrt": "infinity of 0, -infinity of -0",
    "aten::log": "-infinity of 0, NaN below",
    "aten::log2": "-infinity of 0, NaN below",
    "aten::log10": "-infinity of 0, NaN below",
    "aten::log1p": "-infinity of -1, NaN below; accurate near 0",
    "aten::expm1": "accurate near 0",
    "aten::maximum": "NaN if either is NaN",
    "aten::minimum": "NaN if either is NaN",
    "aten::clamp": "min(max(self, min), max): max where min > max; NaN stays, and a NaN bound gives NaN",
    "aten::clamp_min": "NaN stays",
    "aten::clamp_max": "NaN stays",
    "aten::relu": "NaN stays",
    "aten::hardtanh": "NaN stays",
    "aten::threshold_backward": "grad_output where self > threshold or NaN, else 0",
    "aten::gelu": "approximate none: x * Phi(x) by erf; tanh: by tanh",
    "aten::softplus": "log(1 + exp(beta * x)) / beta, and x where beta * x > threshold",
    "aten::where": "what is not chosen has no effect, NaN neither",
    "aten::masked_fill": "what is masked has no effect, NaN neither",
    "aten::masked_scatter": "the elements of source in order, in the order of self",
    "aten::eq": _COMPARED,
    "aten::lt": _COMPARED,
    "aten::le": _COMPARED,
    "aten::gt": _COMPARED,
    "aten::ge": _COMPARED,
    "aten::ne": "true where either is NaN",
    "aten::logical_and": _TRUE,
    "aten::logical_or": _TRUE,
    "aten::logical_xor": _TRUE,
    "aten::logical_not": _TRUE,
    "aten::any": f"false of nothing; {_TRUE}",
    "aten::all": f"true of nothing; {_TRUE}",
    "aten::sum": "0 of nothing",
    "aten::sum.dim_IntList": "0 of nothing; an empty dim is all dimensions",
    "aten::prod": "1 of nothing",
    "aten::mean": "NaN of nothing",
    "aten::mean.dim": "NaN of nothing; an empty dim is all dimensions",
    "aten::var": "sum of squared differences / max(0, count - correction)",
    "aten::linalg_vector_norm": "ord 0 counts nonzeros, infinity is the largest absolute value; 0 of nothing",
    "aten::amax": "NaN if any is NaN",
    "aten::amin": "NaN if any is NaN",
    "aten::max": "NaN if any is NaN",
    "aten::min": "NaN if any is NaN",
    "aten::max.dim": _FIRST,
    "aten::min.dim": _FIRST,
    "aten::argmax": _FIRST,
    "aten::argmin": _FIRST,
    "aten::sort": f"{_LARGEST}; the order of equal elements is open",
    "aten::sort.stable": f"{_LARGEST}; equal elements keep their order if stable is true",
    "aten::topk": f"{_LARGEST}; in order if sorted is true; the order of equal elements is open",
    "aten::_softmax": "exp(x - max) / sum; a row of -inf is NaN",
    "aten::_log_softmax": "x - max - log(sum of exp(x - max)); a row of -inf is NaN",
    "aten::_safe_softmax": "as _softmax; a row of -inf is 0",
    "aten::scatter.src": "of a repeated index any one value",
    "aten::scatter_add": "of a repeated index all values are added, in any order",
    "aten::index_add": "of a repeated index all values are added, in any order",
    "aten::index_put": "of a repeated index any one value; with accumulate all are added",
    "aten::embedding_dense_backward": "of a repeated index all rows are added; none for padding_idx",
    "aten::copy_": "converts the dtype; floats to integers are truncated",
    "aten::cat": "tensors of shape (0,) are left out",
    "aten::bitwise_left_shift": "0 where the shift is below 0, or has all bits or more",
    "aten::bitwise_right_shift": "keeps the sign; by all bits but one where the shift is below 0, or has more",
    "aten::constant_pad_nd": "negative padding crops",
    "aten::mm": "products over a dimension of size 0 are 0",
    "aten::bmm": "products over a dimension of size 0 are 0",
    "aten::addmm": _BETA,
    "aten::baddbmm": _BETA,
    "aten::convolution": "the window is not flipped; output_padding applies if transposed",
    "aten::native_layer_norm": f"(x - mean) * rstd * weight + bias; {_BIASED}",
    "aten::native_group_norm": f"(x - mean) * rstd * weight + bias for each group; {_BIASED}",
    "aten::native_batch_norm": f"{_BIASED}; {_RUNNING}",
    "aten::_native_batch_norm_legit": f"{_BIASED}; {_RUNNING}",
    "aten::_native_batch_norm_legit.no_stats": _BIASED,
    "aten::nll_loss_forward": "targets equal to ignore_index do not count; the mean of none is NaN",
    "aten::max_pool2d_with_indices": "padding is -infinity; the index is the position in the plane; NaN is largest",
    "aten::max_pool3d_with_indices": "padding is -infinity; the index is the position in the volume; NaN is largest",
    "aten::avg_pool2d": "count_include_pad counts padding, nothing beyond it; divisor_override replaces the count",
    "aten::avg_pool3d": "count_include_pad counts padding, nothing beyond it; divisor_override replaces the count",
    "aten::native_dropout": "kept with probability 1 - p and multiplied by 1 / (1 - p); without train a copy",
    "aten::histc": "values outside of min to max are not counted, NaN neither; max falls into the last bin",
    "aten::uniform_": "from is included, to is not",
    "aten::exponential_": "-log(1 - u) / lambd for uniform u from 0 on; never 0, which samplers divide by",
    "aten::random_": "whole numbers; from (0) is included, to is not",
    "aten::randperm": "each number once",
    "aten::_fft_r2c": "normalization 0: none, 1: by the root of the size, 2: by the size",
    "aten::_fft_c2r": "normalization 0: none, 1: by the root of the size, 2: by the size",
    "aten::arange.start_step": "start + i * step; for integers both are truncated first",
    "aten::linspace": "for integers the ends are truncated first, and each number after",
    "isthmus::rms_norm": "input * rsqrt(mean(input ** 2) + eps) * weight, in float32 at least",
    "isthmus::add_rms_norm": "rms_norm(input + residual), and input + residual",
    "isthmus::swiglu": "silu(gate) * up, in float32 at least",
    "isthmus::attention": "a query without a visible key gives 0 and a log-sum-exp of -infinity",
    "isthmus::cross_entropy": "the loss of a row whose target is ignore_index is 0",
}  # fmt: skip


def lines_of(operator: Operator, schema: Schema) -> Iterator[str]:
    """Yield what a kernel's author must know of an operator beyond the general rules, in a few lines."""
    name = operator.name
    text = SEMANTICS.get(name) or SEMANTICS.get(name.partition(".")[0])
    if text:
        yield text
    particular = list(_particular(operator, schema))
    if particular:
        yield "; ".join(particular)


def _particular(operator: Operator, schema: Schema) -> Iterator[str]:
    written = [argument.name for argument in schema.inputs if argument.written]
    if written:
        yield f"writes {', '.join(written)}"
    if rule := INDICES.get(operator.name):
        least = f"-size of {rule.of}" if rule.negative else "0"
        ignored = f", or {rule.ignored}" if rule.ignored else ""
        yield f"{rule.argument}: {least} to size of {rule.of} - 1{ignored}; others are errors"
    if probability := PROBABILITIES.get(operator.name):
        yield f"{probability}: 0 to 1; others are errors"
    if other := ONE_DTYPE.get(operator.name):
        yield f"{other} of another dtype is an error"
    if operator.name in NOT_EMPTY:
        yield "nothing to reduce is an error"
    if operator.rounds_numbers:
        yield "numbers are rounded to the tensors' dtype first"
    if not operator.strided:
        yield "tensors are contiguous"
    if not operator.empty:
        yield "empty dimensions are not judged"
    if not operator.special:
        yield "neither NaN nor infinity is judged"
    elif operator.special == ONLY_NAN:
        yield "infinity is not judged"
    if not operator.denormal:
        yield "denormal numbers are not judged"
