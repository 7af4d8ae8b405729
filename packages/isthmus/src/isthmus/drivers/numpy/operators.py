"""The operator library of the numpy chip; importing a family of kernels registers it."""

from isthmus.drivers.numpy.kernels import (
    attention,
    convolution,
    indexing,
    llm_activation,
    llm_dropout,
    llm_loss,
    llm_moe,
    llm_norm,
    llm_optimizer,
    llm_paged_attention,
    llm_rotary,
    llm_softmax,
    llm_unpad,
    normalization,
    optimizers,
    pointwise,
    pooling,
    random,
    reductions,
    sampling,
    shape,
    spatial,
)
from isthmus.drivers.numpy.kernels.kernel import library

# Operators of the opset without a kernel here, and why.
ABSENT = dict.fromkeys(
    ("aten::_fft_r2c", "aten::_fft_c2r"),
    "tvm_ffi.Tensor cannot represent complex dtypes, so that a Python function cannot receive their spectra",
)

__all__ = [
    "ABSENT",
    "library",
    "attention",
    "convolution",
    "indexing",
    "llm_activation",
    "llm_dropout",
    "llm_loss",
    "llm_moe",
    "llm_norm",
    "llm_optimizer",
    "llm_paged_attention",
    "llm_rotary",
    "llm_softmax",
    "llm_unpad",
    "normalization",
    "optimizers",
    "pointwise",
    "pooling",
    "random",
    "reductions",
    "sampling",
    "shape",
    "spatial",
]
