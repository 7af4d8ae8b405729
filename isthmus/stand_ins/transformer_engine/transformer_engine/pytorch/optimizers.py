"""Optimizers and functions over lists of tensors, from apex's stand-in."""

from amp_C import multi_tensor_l2norm, multi_tensor_scale  # type: ignore[import-not-found]
from apex.multi_tensor_apply import multi_tensor_applier  # type: ignore[import-not-found]
from apex.optimizers import FusedAdam, FusedSGD  # type: ignore[import-not-found]

multi_tensor_scale_tensor = multi_tensor_scale  # its factor is a tensor

__all__ = [
    "FusedAdam", "FusedSGD", "multi_tensor_applier", "multi_tensor_l2norm", "multi_tensor_scale",
    "multi_tensor_scale_tensor",
]  # fmt: skip
