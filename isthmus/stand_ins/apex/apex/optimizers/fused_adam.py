"""Adam with apex's arguments."""

from collections.abc import Callable
from typing import Any

import torch

from isthmus.ops.optimizer import adamw_


class FusedAdam(torch.optim.Optimizer):
    """apex's FusedAdam by :func:`isthmus.ops.adamw_`; one step counter per group, state in float32.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        bias_correction: correct the bias of the running means.
        betas: decay of the running means of the gradient and of its square.
        eps: added to the square root.
        adam_w_mode: decoupled weight decay; False is an L2 penalty.
        weight_decay: coefficient.
        amsgrad: supported, unlike in apex.
        set_grad_none: ``zero_grad()`` sets gradients to None.
        capturable: ignored.
        master_weights: keep float32 master weights in the state, as ``master_param``.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
        capturable: bool = False,
        master_weights: bool = False,
    ) -> None:
        defaults = {
            "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad,
        }  # fmt: skip
        super().__init__(params, defaults)
        self.adam_w_mode = int(adam_w_mode)
        self.set_grad_none, self.capturable, self.master_weights = set_grad_none, capturable, master_weights

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Clear the gradients; the default is ``set_grad_none``."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    @torch.no_grad()
    def step(
        self, closure: Callable[[], Any] | None = None, grads: Any = None, output_params: Any = None,
        scale: Any = None, grad_norms: Any = None, grad_scaler: Any = None,
    ) -> Any:  # fmt: skip
        """Perform one step; the other arguments are apex's deprecated ones.

        Raises:
            RuntimeError: a deprecated argument is given.
        """
        if any(each is not None for each in (grads, output_params, scale, grad_norms, grad_scaler)):
            raise RuntimeError(
                "FusedAdam.step takes a closure only; call GradScaler.step(optimizer) for scaled gradients"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if used := [each for each in group["params"] if each.grad is not None]:
                self._update(group, used)
        return loss

    def _update(self, group: dict[str, Any], params: list[torch.Tensor]) -> None:
        states = [self._state(each, group["amsgrad"]) for each in params]
        count = float(group.get("step", 0))
        # At an infinite step the bias corrections are 1.
        start = count if group["bias_correction"] else float("inf")
        group["step"] = int(count) + 1
        adamw_(
            params,
            [each.grad for each in params if each.grad is not None],
            [each["exp_avg"] for each in states],
            [each["exp_avg_sq"] for each in states],
            torch.full((len(params),), start, device=params[0].device).unbind(0),
            max_exp_avg_sqs=[each["max_exp_avg_sq"] for each in states] if group["amsgrad"] else (),
            masters=[each["master_param"] for each in states] if self.master_weights else (),
            lr=float(group["lr"]),
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            decoupled=bool(self.adam_w_mode),
        )

    def _state(self, param: torch.Tensor, amsgrad: bool) -> dict[str, torch.Tensor]:
        state = self.state[param]
        kind = torch.promote_types(param.dtype, torch.float32)
        for key in ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else [])):
            if key not in state:
                state[key] = torch.zeros_like(param, dtype=kind, memory_format=torch.preserve_format)
        if self.master_weights and "master_param" not in state:
            state["master_param"] = param.detach().to(kind, copy=True)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state without rounding float32 values to the parameter's dtype."""
        super().load_state_dict(state_dict)
        ids = (each for group in state_dict["param_groups"] for each in group["params"])
        params = (each for group in self.param_groups for each in group["params"])
        for index, param in zip(ids, params, strict=True):
            for key, value in state_dict["state"].get(index, {}).items():
                if isinstance(value, torch.Tensor) and value.shape == param.shape:
                    self.state[param][key] = value.to(param.device, copy=True)
