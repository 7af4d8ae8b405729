"""DeepSpeed's operators: fused Adam by isthmus.ops, the optimizers of offloaded state by DeepSpeed's CPU kernels."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import torch
from deepspeed.ops.op_builder import cpu
from deepspeed.ops.op_builder.builder import OpBuilder

from isthmus import ops

Lists = list[list[torch.Tensor]]

# State that is offloaded to the host, and files, are the same wherever the model is.
_OF_THE_HOST = ("CPUAdamBuilder", "CPUAdagradBuilder", "CPULionBuilder", "AsyncIOBuilder", "PinMemoryBuilder")


class FusedAdam:
    """The operators of ``deepspeed.ops.adam.FusedAdam``."""

    @staticmethod
    def multi_tensor_adam(
        chunk_size: int, noop_flag_buffer: torch.Tensor, tensor_lists: Lists, lr: float, beta1: float, beta2: float,
        epsilon: float, step: int, adam_w_mode: int, bias_correction: int, weight_decay: float,
    ) -> None:  # fmt: skip
        """One step of Adam or AdamW, in place.

        Args:
            chunk_size: not needed here.
            noop_flag_buffer: not read: DeepSpeed skips steps itself.
            tensor_lists: gradients, parameters, running means of the gradients and of their squares.
            lr: learning rate.
            beta1: decay of the first mean.
            beta2: decay of the second.
            epsilon: added to the root.
            step: number of this step, from 1.
            adam_w_mode: 1 is AdamW, 0 Adam with L2 regularisation.
            bias_correction: 1 divides the means by ``1 - beta ** step``.
            weight_decay: factor of the parameters.
        """
        grads, params, means, squares = tensor_lists
        before = float(step - 1) if bias_correction else math.inf  # beta ** inf is 0: no correction
        steps = [torch.full((), before, dtype=torch.float32, device=each.device) for each in params]
        ops.adamw_(
            params, grads, means, squares, steps, lr=lr, beta1=beta1, beta2=beta2, eps=epsilon,
            weight_decay=weight_decay, decoupled=bool(adam_w_mode),
        )  # fmt: skip


class FusedAdamBuilder(OpBuilder):  # type: ignore[misc]
    """Nothing is built: the operator is in isthmus.ops."""

    BUILD_VAR = "DS_BUILD_FUSED_ADAM"
    NAME = "fused_adam"

    def __init__(self) -> None:
        super().__init__(name=self.NAME)

    def absolute_name(self) -> str:
        """Name of the module that it would be."""
        return f"deepspeed.ops.adam.{self.NAME}_op"

    def sources(self) -> list[str]:
        """None."""
        return []

    def load(self, verbose: bool = True) -> type[FusedAdam]:
        """The operators."""
        return FusedAdam


class MissingBuilder(OpBuilder):  # type: ignore[misc]
    """An operator that DeepSpeed has for GPUs only; NAME is what DeepSpeed keeps for such."""

    BUILD_VAR = "DS_BUILD_NOT_IMPLEMENTED"
    NAME = "deepspeed_not_implemented"
    OPERATOR = ""
    DEVICE = ""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name or self.NAME)

    def absolute_name(self) -> str:
        """Name of the module that it would be."""
        return f"deepspeed.ops.{self.NAME}_op"

    def sources(self) -> list[str]:
        """None."""
        return []

    def is_compatible(self, verbose: bool = False) -> bool:
        """False."""
        return False

    def load(self, verbose: bool = True) -> NoReturn:
        """Raise.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"DeepSpeed's {self.OPERATOR} is written for GPUs and cannot run on {self.DEVICE}; leave out the option "
            "of the configuration that asks for it"
        )


def find(class_name: str, device_type: str) -> Any:
    """Class of the builder of that name; one whose ``load`` raises where there is no such operator."""
    if class_name == "FusedAdamBuilder":
        return FusedAdamBuilder
    if class_name in _OF_THE_HOST:
        return getattr(cpu, class_name)
    operator = class_name.removesuffix("Builder")
    return type(class_name, (MissingBuilder,), {"OPERATOR": operator, "DEVICE": device_type})
