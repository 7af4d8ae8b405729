"""Optimizers and functions over lists of tensors, from apex's stand-in."""

from typing import Any

import torch
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
        *,
        bias_correction: bool = True,
        adam_w_mode: bool = True,
        capturable: bool = False,
        master_weights: bool = False,
        master_weight_dtype: torch.dtype = torch.float32,
        exp_avg_dtype: torch.dtype = torch.float32,
        exp_avg_sq_dtype: torch.dtype = torch.float32,
        use_decoupled_grad: bool = False,
        store_param_remainders: bool = False,
        set_grad_none: bool = True,
    ) -> None:  # each by its name: Megatron looks for them
        super().__init__(
            params, lr, bias_correction, betas, eps, adam_w_mode, weight_decay, amsgrad, set_grad_none, capturable,
            master_weights, master_weight_dtype=master_weight_dtype, exp_avg_dtype=exp_avg_dtype,
            exp_avg_sq_dtype=exp_avg_sq_dtype, use_decoupled_grad=use_decoupled_grad,
            store_param_remainders=store_param_remainders,
        )  # fmt: skip


__all__ = [
    "FusedAdam", "FusedSGD", "multi_tensor_applier", "multi_tensor_l2norm", "multi_tensor_scale",
    "multi_tensor_scale_tensor",
]  # fmt: skip
