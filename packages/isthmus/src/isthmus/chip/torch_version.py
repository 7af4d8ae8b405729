"""Differences between the supported versions of PyTorch.

Each entry names the version, what changed in it, and when the entry can go.
"""

import torch

_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])

# 2.14: torch.autograd.profiler.profile lost the parameter use_cuda. Goes with 2.13.
PROFILE_TAKES_USE_CUDA = _VERSION < (2, 14)
