"""LAMB (You et al., 2019) with apex's arguments."""

from collections.abc import Callable
from typing import Any

import torch

from isthmus.ops.gradients import grad_norm


class FusedLAMB(torch.optim.Optimizer):
    """Adam's update scaled by the ratio of the norms of parameter and update; one step counter per group.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        bias_correction: correct the bias of the running means.
        betas: decay of the running means of the gradient and of its square.
        eps: added to the square root.
        weight_decay: coefficient.
        amsgrad: not supported, as in apex.
        adam_w_mode: decoupled weight decay; False is an L2 penalty.
        grad_averaging: multiply the gradient by ``1 - betas[0]`` in the running mean.
        set_grad_none: ``zero_grad()`` sets gradients to None.
        max_grad_norm: clip the norm of all gradients to this before.
        use_nvlamb: scale the updates of parameters without weight decay too.

    Raises:
        RuntimeError: ``amsgrad``.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLAMB: amsgrad=True is not supported; omit it")
        defaults = {
            "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "grad_averaging": grad_averaging, "max_grad_norm": max_grad_norm,
        }  # fmt: skip
        super().__init__(params, defaults)
        self.adam_w_mode, self.set_grad_none, self.use_nvlamb = int(adam_w_mode), set_grad_none, use_nvlamb

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Clear the gradients; the default is ``set_grad_none``."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Perform one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        used = [
            (group, [each for each in group["params"] if each.grad is not None])
            for group in self.param_groups
        ]
        grads = [each.grad for _, params in used for each in params if each.grad is not None]
        if not grads:
            return loss
        norm, limit = grad_norm(grads), self.defaults["max_grad_norm"]
        clip = torch.where(norm > limit, norm / limit, torch.ones_like(norm))
        for group, params in used:
            group["step"] = group.get("step", 0) + 1
            for param in params:
                self._update(group, param, clip)
        return loss

    def _update(self, group: dict[str, Any], param: torch.Tensor, clip: torch.Tensor) -> None:
        state = self.state[param]
        for name in ("exp_avg", "exp_avg_sq"):
            if name not in state:
                state[name] = torch.zeros_like(param)
        assert param.grad is not None
        (beta1, beta2), decay, lr = group["betas"], group["weight_decay"], group["lr"]
        value, grad = param.float(), param.grad.float() / clip
        if not self.adam_w_mode:
            grad = grad + decay * value
        mean = state["exp_avg"] * beta1 + grad * (1 - beta1 if group["grad_averaging"] else 1.0)
        square = state["exp_avg_sq"] * beta2 + grad * grad * (1 - beta2)
        state["exp_avg"].copy_(mean)
        state["exp_avg_sq"].copy_(square)
        first, second = (
            1 - beta ** group["step"] if group["bias_correction"] else 1.0 for beta in (beta1, beta2)
        )
        update = (mean / first) / ((square / second).sqrt() + group["eps"])
        if self.adam_w_mode:
            update = update + decay * value
        if self.use_nvlamb or decay != 0:
            norms = value.norm(), update.norm()
            ratio = torch.where(
                (norms[0] != 0) & (norms[1] != 0), norms[0] / norms[1], torch.ones_like(norms[0])
            )
            update = update * ratio
        param.copy_(value - lr * update)
