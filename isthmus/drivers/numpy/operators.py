"""The operator library of the numpy chip; importing a family of kernels registers it."""

from isthmus.drivers.numpy.kernels import (
    convolution,
    indexing,
    normalization,
    optimizers,
    pointwise,
    random,
    reductions,
)
from isthmus.drivers.numpy.kernels.kernel import library

__all__ = [
    "library",
    "pointwise",
    "reductions",
    "normalization",
    "convolution",
    "indexing",
    "random",
    "optimizers",
]
