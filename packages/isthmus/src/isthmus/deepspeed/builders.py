"""DeepSpeed's operators: fused Adam by isthmus.ops; optimizers of offloaded state by DeepSpeed's CPU kernels."""

import math
from typing import Any, NoReturn

import torch
from deepspeed.ops.op_builder import cpu
from deepspeed.ops.op_builder.builder import OpBuilder

from isthmus import ops

Lists = list[list[torch.Tensor]]

# Operators for offloaded state and files, which run on the host.
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
            chunk_size: ignored.
            noop_flag_buffer: ignored; DeepSpeed skips steps itself.
            tensor_lists: gradients, parameters, running means of the gradients and of their squares.
            lr: learning rate.
            beta1: decay of the first mean.
            beta2: decay of the second mean.
            epsilon: added to the square root.
            step: number of this step, from 1.
            adam_w_mode: 1 is AdamW, 0 Adam with an L2 penalty.
            bias_correction: 1 divides the means by ``1 - beta ** step``.
            weight_decay: coefficient.
        """
        grads, params, means, squares = tensor_lists
        before = float(step - 1) if bias_correction else math.inf  # beta ** inf is 0: no correction
        steps = [torch.full((), before, dtype=torch.float32, device=each.device) for each in params]
        ops.adamw_(
            params, grads, means, squares, steps, lr=lr, beta1=beta1, beta2=beta2, eps=epsilon,
            weight_decay=weight_decay, decoupled=bool(adam_w_mode),
        )  # fmt: skip


class FusedAdamBuilder(OpBuilder):  # type: ignore[misc]
    """Builder of fused Adam, which is part of isthmus.ops."""

    BUILD_VAR = "DS_BUILD_FUSED_ADAM"
    NAME = "fused_adam"

    def __init__(self) -> None:
        super().__init__(name=self.NAME)

    def absolute_name(self) -> str:
        return f"deepspeed.ops.adam.{self.NAME}_op"

    def sources(self) -> list[str]:
        return []

    def load(self, verbose: bool = True) -> type[FusedAdam]:
        return FusedAdam


class MissingBuilder(OpBuilder):  # type: ignore[misc]
    """Builder of an operator that DeepSpeed has only for GPUs."""

    BUILD_VAR = "DS_BUILD_NOT_IMPLEMENTED"
    NAME = "deepspeed_not_implemented"
    OPERATOR = ""
    DEVICE = ""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name or self.NAME)

    def absolute_name(self) -> str:
        return f"deepspeed.ops.{self.NAME}_op"

    def sources(self) -> list[str]:
        return []

    def is_compatible(self, verbose: bool = False) -> bool:
        return False

    def load(self, verbose: bool = True) -> NoReturn:
        """Not supported.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"DeepSpeed's {self.OPERATOR} is for GPUs only and cannot run on {self.DEVICE}; remove the option "
            "that enables it from the configuration"
        )


def find(class_name: str, device_type: str) -> Any:
    """Builder class by name; ``load`` of unsupported builders raises."""
    if class_name == "FusedAdamBuilder":
        return FusedAdamBuilder
    if class_name in _OF_THE_HOST:
        return getattr(cpu, class_name)
    operator = class_name.removesuffix("Builder")
    return type(class_name, (MissingBuilder,), {"OPERATOR": operator, "DEVICE": device_type})
