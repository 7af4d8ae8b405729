"""Dtypes in which the CPU's kernels compute for the chip: rules per operator, by ATen name.

A rule holds for every overload of an operator: functional, in-place and ``out=``. Its tensors of a narrow dtype are
converted to the wider one, the CPU's kernel is called, and the results are converted back, so they are rounded once.
Tensors of other dtypes are computed as on the CPU, to the bit. With ``ISTHMUS_HOST_ACCUMULATE=cpu`` 16-bit sums are
the CPU's too, for comparisons with it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from isthmus import options
from isthmus.chip import torch_version


class Rule(NamedTuple):
    """A rule of the computation of an operator.

    Attributes:
        wider: the dtype that replaces a dtype.
        flag: a bool argument that has to be true, or a number other than 1; "" for any call. A rule with a number
            holds, too, for a Python number that the narrow dtype would round.
        like: the argument whose dtype each result has, if the kernel takes mixed dtypes. Without it, calls with mixed
            floating-point dtypes are the CPU's.
        kept: arguments that a kernel of mixed dtypes takes as they are, if it gets others in the wider dtype.
    """

    wider: dict[torch.dtype, torch.dtype]
    flag: str = ""
    like: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


_HALF = {torch.float16: torch.float32}
_REDUCED = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_COMPLEX_HALF = {torch.complex32: torch.complex64}
_BOOL = {torch.bool: torch.uint8}
_FFT_REAL, _FFT_COMPLEX = dict(_HALF), dict(_COMPLEX_HALF)
if torch_version.BCOMPLEX32:
    _FFT_REAL[torch.bfloat16] = torch.float32
    _FFT_COMPLEX[torch_version.BCOMPLEX32] = torch.complex64
_FLOAT8 = dict.fromkeys(
    (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz), torch.float16
)

# Many-to-one sums and products that the CPU's kernels accumulate in 16 bits, so that sums of ones stop at 256
# (bfloat16) or 2048 (float16), and those of which they round a part, such as an average or a weight; CUDA computes in
# float32.
ACCUMULATED_IN_FLOAT32 = (
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d",
    "_adaptive_avg_pool3d_backward",
    "_coalesce",
    "_embedding_bag_backward",
    "_embedding_bag_dense_backward",
    "_log_softmax",
    "_segment_reduce_backward",
    "_softmax",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
    "addbmm",
    "avg_pool2d_backward",
    "col2im",
    "embedding_dense_backward",
    "fractional_max_pool2d_backward",
    "fractional_max_pool3d_backward",
    "grid_sampler_2d",
    "grid_sampler_2d_backward",
    "grid_sampler_3d",
    "grid_sampler_3d_backward",
    "index_add",
    "index_reduce",
    "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices_backward",
    "nll_loss2d_forward",
    "nll_loss_forward",
    "prod",
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "reflection_pad3d_backward",
    "replication_pad1d_backward",
    "replication_pad2d_backward",
    "replication_pad3d_backward",
    "segment_reduce",
    "unfold_backward",
    "upsample_bicubic2d",
    "upsample_linear1d",
    "upsample_trilinear3d",
)

# The same of those that PyTorch has under other names for the chip (csrc/dispatch/operators/convolution.cpp). A name
# after ``transposed`` and a space has a rule for transposed convolutions.
CONVOLUTIONS = ("convolution", "convolution_backward")

# The same of calls with sparse tensors; the CPU's kernels for compressed ones take no 16 bits.
ACCUMULATED_IN_FLOAT32_OF_SPARSE = (
    "_sparse_csr_sum",
    "_sparse_sparse_matmul",
    "_to_dense",
    "add",
    "addmm",
    "addmv",
    "bmm",
    "hspmm",
    "mm",
    "mv",
    "sparse_sampled_addmm",
    "sspaddmm",
    "sum",
)

# The same, if their argument ``accumulate`` is true.
ACCUMULATED_IN_FLOAT32_ON_REQUEST = ("_index_put_impl", "put")

# The CPU's kernels round the factor and the product with it, and a Python number that is added; an optimizer's
# learning rate is such a factor.
SCALED_IN_FLOAT32 = ("add", "rsub", "sub")

# The same as the sums, of mixed dtypes: the argument whose dtype each result has.
ACCUMULATED_IN_FLOAT32_OF_MIXED = {"native_layer_norm_backward": ("input", "weight", "bias")}

# The same of parameters and statistics; the input, which is larger, is read as it is.
ACCUMULATED_IN_FLOAT32_BUT_INPUT = (
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "native_batch_norm",
)

# Dtypes that CUDA's kernels take and the CPU's do not.
ABSENT_ON_CPU: dict[str, dict[torch.dtype, torch.dtype]] = {
    "_fft_c2c": _FFT_COMPLEX,
    "_fft_c2r": _FFT_COMPLEX,
    "_fft_r2c": _FFT_REAL,
    "_upsample_bicubic2d_aa": _REDUCED,
    "_upsample_bicubic2d_aa_backward": _REDUCED,
    "_upsample_bilinear2d_aa": _REDUCED,
    "_upsample_bilinear2d_aa_backward": _REDUCED,
    "_sample_dirichlet": _REDUCED,
    "_standard_gamma": _REDUCED,
    "_standard_gamma_grad": _REDUCED,
    "abs": _BOOL,
    "acos": _COMPLEX_HALF,
    "acosh": _COMPLEX_HALF,
    "angle": _COMPLEX_HALF,
    "asin": _COMPLEX_HALF,
    "asinh": _COMPLEX_HALF,
    "atan": _COMPLEX_HALF,
    "atanh": _COMPLEX_HALF,
    "avg_pool3d": _REDUCED,
    "avg_pool3d_backward": _REDUCED,
    "binomial": _REDUCED,
    "cos": _COMPLEX_HALF,
    "cosh": _COMPLEX_HALF,
    "div": _COMPLEX_HALF,
    "exp": _COMPLEX_HALF,
    "lerp": _COMPLEX_HALF,
    "log": _COMPLEX_HALF,
    "logaddexp": _COMPLEX_HALF,
    "multi_margin_loss": _REDUCED,
    "multi_margin_loss_backward": _REDUCED,
    "multilabel_margin_loss_backward": _REDUCED,
    "multilabel_margin_loss_forward": _REDUCED,
    "pow": _COMPLEX_HALF,
    "prod": _COMPLEX_HALF,
    "rrelu_with_noise": _HALF,
    "rsqrt": _COMPLEX_HALF,
    "scatter": _FLOAT8 if torch_version.SCATTER_TAKES_FLOAT8 else {},
    "sigmoid": _COMPLEX_HALF,
    "sigmoid_backward": _COMPLEX_HALF,
    "sin": _COMPLEX_HALF,
    "sinh": _COMPLEX_HALF,
    "sqrt": _COMPLEX_HALF,
    "sum": _COMPLEX_HALF,
    "tan": _COMPLEX_HALF,
    "tanh": _COMPLEX_HALF,
    "tanh_backward": _COMPLEX_HALF,
    "trace": _BOOL | _COMPLEX_HALF,
}


def rules() -> dict[str, Rule]:
    """Return the rule of each operator, by name without namespace, overload and final underscore.

    A name after ``sparse`` and a space has a rule for calls with sparse tensors only.
    """
    found = {name: Rule(wider) for name, wider in ABSENT_ON_CPU.items()}
    if options.text("host_accumulate") == "cpu":
        return found
    found |= {name: Rule(ABSENT_ON_CPU.get(name, {}) | _REDUCED) for name in ACCUMULATED_IN_FLOAT32}
    found |= dict.fromkeys(CONVOLUTIONS, Rule(_wider_of_convolutions()))
    found |= {f"transposed {name}": Rule(_REDUCED) for name in CONVOLUTIONS}
    found |= {f"sparse {name}": Rule(_REDUCED) for name in ACCUMULATED_IN_FLOAT32_OF_SPARSE}
    found |= dict.fromkeys(ACCUMULATED_IN_FLOAT32_ON_REQUEST, Rule(_REDUCED, "accumulate"))
    found |= dict.fromkeys(ACCUMULATED_IN_FLOAT32_BUT_INPUT, Rule(_REDUCED, kept=("input",)))
    found |= dict.fromkeys(SCALED_IN_FLOAT32, Rule(_REDUCED, "alpha"))
    return found | {name: Rule(_REDUCED, "", like) for name, like in ACCUMULATED_IN_FLOAT32_OF_MIXED.items()}


def _wider_of_convolutions() -> dict[torch.dtype, torch.dtype]:
    """oneDNN adds in float32; PyTorch's own kernels add columns in 16 bits, and serve what oneDNN does not take."""
    return _HALF if torch.ops.mkldnn._is_mkldnn_bf16_supported() else _REDUCED
