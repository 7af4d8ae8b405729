"""An optimizer with float32 master parameters for a float16 model, and a loss scale."""

from collections.abc import Callable
from typing import Any

import torch

from ..amp.losses import LossScaler
from .fp16util import clip_grad_norm, master_params_to_model_params


class FP16_Optimizer:
    """Gives an optimizer float32 copies of the half-precision parameters.

    Call :meth:`backward` instead of ``loss.backward()``.

    Args:
        init_optimizer: the optimizer; its groups then hold the master parameters.
        static_loss_scale: factor of the loss.
        dynamic_loss_scale: adapt the factor; a step with an overflow is skipped.
        dynamic_loss_args: ``init_scale``, ``scale_factor``, ``scale_window``, ``min_loss_scale``, ``max_loss_scale``.
        verbose: print the parameters' dtypes.

    Raises:
        TypeError: a parameter is neither float16, bfloat16 nor float32.
    """

    def __init__(
        self,
        init_optimizer: torch.optim.Optimizer,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        dynamic_loss_args: dict[str, Any] | None = None,
        verbose: bool = True,
    ) -> None:
        self.optimizer, self.verbose = init_optimizer, verbose
        self.fp16_groups: list[list[torch.Tensor]] = []
        self.fp32_from_fp16_groups: list[list[torch.Tensor]] = []
        self.fp32_from_fp32_groups: list[list[torch.Tensor]] = []
        for index, group in enumerate(self.optimizer.param_groups):
            self.maybe_print(f"FP16_Optimizer processing param group {index}:")
            self._add_masters(group)
        self.optimizer.load_state_dict(self.optimizer.state_dict())  # casts states to the masters' dtype
        self.dynamic_loss_scale = dynamic_loss_scale
        scale: Any = "dynamic" if dynamic_loss_scale else static_loss_scale
        self.loss_scaler = LossScaler(scale, **(dynamic_loss_args or {} if dynamic_loss_scale else {}))
        self.overflow = False
        self.first_closure_call_this_step = True
        self.clip_grad_norm = clip_grad_norm

    def _add_masters(self, group: dict[str, Any]) -> None:
        halves: list[torch.Tensor] = []
        masters: list[torch.Tensor] = []
        wide: list[torch.Tensor] = []
        for index, param in enumerate(group["params"]):
            if not param.requires_grad:
                continue
            self.maybe_print(f"FP16_Optimizer received {param.dtype} with {tuple(param.shape)}")
            if param.dtype == torch.float32:
                wide.append(param)
            elif param.dtype in (torch.float16, torch.bfloat16):
                master = param.detach().clone().float().requires_grad_()
                group["params"][index] = master
                if param in self.optimizer.state:
                    self.optimizer.state[master] = self.optimizer.state.pop(param)
                halves.append(param)
                masters.append(master)
            else:
                raise TypeError(f"FP16_Optimizer: a parameter is {param.dtype}; expected float16 or float32")
        self.fp16_groups.append(halves)
        self.fp32_from_fp16_groups.append(masters)
        self.fp32_from_fp32_groups.append(wide)

    def maybe_print(self, msg: str) -> None:
        """Print, if verbose."""
        if self.verbose:
            print(msg)

    def _pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(parameter of the model, master parameter) of the half-precision parameters."""
        groups = zip(self.fp16_groups, self.fp32_from_fp16_groups, strict=True)
        return [pair for halves, masters in groups for pair in zip(halves, masters, strict=True)]

    def zero_grad(self, set_grads_to_None: bool = False) -> None:
        """Clear the gradients of model and master parameters."""
        self.optimizer.zero_grad(set_grads_to_None)
        for param, _ in self._pairs():
            if param.grad is not None:
                param.grad = None if set_grads_to_None else param.grad.detach().zero_()

    def backward(
        self, loss: torch.Tensor, update_master_grads: bool = True, retain_graph: bool = False
    ) -> None:
        """Call the backward of the scaled loss.

        Args:
            loss: the loss.
            update_master_grads: unscale the gradients for the master parameters; False if another loss follows.
            retain_graph: as of :meth:`torch.Tensor.backward`.
        """
        (loss.float() * self.loss_scaler.loss_scale()).backward(retain_graph=retain_graph)
        if update_master_grads:
            self.update_master_grads()

    @torch.no_grad()
    def update_master_grads(self) -> None:
        """Unscale the gradients into those of the master parameters, and update the scale."""
        scale, grads = self.loss_scaler.loss_scale(), []
        for param, master in self._pairs():
            if param.grad is not None:
                master.grad = param.grad.float() / scale
                grads.append(master.grad)
        for param in (each for group in self.fp32_from_fp32_groups for each in group):
            if param.grad is not None:
                grads.append(param.grad.div_(scale))
        checks = [each.isfinite().all() for each in grads]
        self.overflow = self.loss_scaler.update(bool(checks) and not bool(torch.stack(checks).all()))

    def clip_master_grads(self, max_norm: float, norm_type: float = 2) -> Any:
        """Clip the gradients of the master parameters; returns their norm, or -1 after an overflow."""
        if self.overflow:
            return -1
        params = [param for group in self.optimizer.param_groups for param in group["params"]]
        return self.clip_grad_norm(params, max_norm, norm_type)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step, and copy the master parameters to the model; after an overflow nothing.

        Args:
            closure: clears the gradients, calls :meth:`backward` and returns the loss.
        """
        if self.overflow:
            print(
                f"Gradient overflow.  Skipping step, reducing loss scale to {self.loss_scaler.loss_scale()}"
            )
            return None
        result = self.optimizer.step() if closure is None else self._step_with(closure)
        self._copy_to_model()
        return result

    def _step_with(self, closure: Callable[[], Any]) -> Any:
        def evaluate() -> Any:
            if not self.first_closure_call_this_step:
                self._copy_to_model()
            self.first_closure_call_this_step = False
            loss = closure()
            while self.overflow:
                print(f"Gradient overflow in the closure; the loss scale is {self.loss_scaler.loss_scale()}")
                loss = closure()
            return loss

        result = self.optimizer.step(evaluate)
        self.first_closure_call_this_step = True
        return result

    def _copy_to_model(self) -> None:
        for halves, masters in zip(self.fp16_groups, self.fp32_from_fp16_groups, strict=True):
            master_params_to_model_params(halves, masters)

    def inspect_master_grad_data(self) -> list[list[torch.Tensor | None]] | None:
        """Gradients of the master parameters by group; None after an overflow."""
        if self.overflow:
            print("Warning: the gradients overflowed; inspect_master_grad_data returns None")
            return None
        return [[param.grad for param in group["params"]] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """State of the optimizer, the scale and the master parameters."""
        return {
            "loss_scaler": {"loss_scale": self.loss_scaler.value, "unskipped": self.loss_scaler.unskipped},
            "dynamic_loss_scale": self.dynamic_loss_scale, "overflow": self.overflow,
            "first_closure_call_this_step": self.first_closure_call_this_step,
            "optimizer_state_dict": self.optimizer.state_dict(), "fp32_from_fp16": self.fp32_from_fp16_groups,
        }  # fmt: skip

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of :meth:`state_dict`."""
        scaler = state_dict["loss_scaler"]
        self.loss_scaler.value, self.loss_scaler.unskipped = scaler["loss_scale"], scaler["unskipped"]
        self.loss_scaler.dynamic = self.dynamic_loss_scale = state_dict["dynamic_loss_scale"]
        self.overflow = state_dict["overflow"]
        self.first_closure_call_this_step = state_dict["first_closure_call_this_step"]
        self.optimizer.load_state_dict(state_dict["optimizer_state_dict"])
        for group, saved in zip(self.fp32_from_fp16_groups, state_dict["fp32_from_fp16"], strict=True):
            for master, value in zip(group, saved, strict=True):
                master.copy_(value)

    @property
    def loss_scale(self) -> float:
        """Factor of the loss."""
        return self.loss_scaler.loss_scale()

    @loss_scale.setter
    def loss_scale(self, value: float) -> None:
        self.loss_scaler.value = value

    @property
    def state(self) -> Any:
        """State of the optimizer."""
        return self.optimizer.state

    @state.setter
    def state(self, value: Any) -> None:
        self.optimizer.state = value

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Groups of the optimizer, with the master parameters."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, value: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = value
