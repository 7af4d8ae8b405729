"""Parts of NVIDIA apex (https://github.com/NVIDIA/apex), implemented by :mod:`isthmus.ops`."""

from . import amp, fp16_utils, multi_tensor_apply, normalization, optimizers, parallel

__version__ = "0.1+isthmus"
__all__ = ["amp", "fp16_utils", "multi_tensor_apply", "normalization", "optimizers", "parallel"]
