"""Optimizers and functions over lists of tensors, from apex's stand-in."""

from typing import Any

from amp_C import multi_tensor_l2norm, multi_tensor_scale  # type: ignore[import-not-found]
from apex.multi_tensor_apply import multi_tensor_applier  # type: ignore[import-not-found]
from apex.optimizers import FusedAdam as _FusedAdam  # type: ignore[import-not-found]
from apex.optimizers import FusedSGD

multi_tensor_scale_tensor = multi_tensor_scale  # its factor is a tensor


class FusedAdam(_FusedAdam):  # type: ignore[misc]
    """apex's stand-in, with Transformer Engine's order of the arguments."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            params, lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, **options
        )


__all__ = [
    "FusedAdam", "FusedSGD", "multi_tensor_applier", "multi_tensor_l2norm", "multi_tensor_scale",
    "multi_tensor_scale_tensor",
]  # fmt: skip
