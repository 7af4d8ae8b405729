"""Parts of NVIDIA apex (https://github.com/NVIDIA/apex), implemented by :mod:`isthmus.ops`."""

from . import amp, multi_tensor_apply, normalization, optimizers

__version__ = "0.1+isthmus"
__all__ = ["amp", "multi_tensor_apply", "normalization", "optimizers"]
