"""Layer-wise adaptive rates (You et al., 2017)."""

from typing import Any

import torch


class LARC:
    """Wraps an optimizer; scales each gradient by the ratio of the norms of parameter and gradient.

    Args:
        optimizer: the optimizer.
        trust_coefficient: factor of the ratio.
        clip: the ratio only lowers the learning rate.
        eps: added to the denominator.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        trust_coefficient: float = 0.02,
        clip: bool = True,
        eps: float = 1e-8,
    ) -> None:
        self.optim, self.trust_coefficient, self.clip, self.eps = optimizer, trust_coefficient, clip, eps

    def __getattr__(self, name: str) -> Any:
        if name == "optim":  # not set yet, in a copy
            raise AttributeError(name)
        return getattr(self.optim, name)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Groups of the optimizer."""
        return self.optim.param_groups

    @param_groups.setter
    def param_groups(self, value: list[dict[str, Any]]) -> None:
        self.optim.param_groups = value

    def step(self) -> None:
        """Scale the gradients in place and step; weight decay is added to the gradients before."""
        decays = [group.get("weight_decay", 0) for group in self.param_groups]
        for group, decay in zip(self.param_groups, decays, strict=True):
            group["weight_decay"] = 0
            for param in group["params"]:
                if param.grad is not None:
                    self._scale(param, decay, group["lr"])
        self.optim.step()
        for group, decay in zip(self.param_groups, decays, strict=True):
            group["weight_decay"] = decay

    @torch.no_grad()
    def _scale(self, param: torch.Tensor, decay: float, lr: float) -> None:
        assert param.grad is not None
        norm, grad_norm = param.norm(), param.grad.norm()
        rate = self.trust_coefficient * norm / (grad_norm + norm * decay + self.eps)
        rate = (rate / lr).clamp(max=1) if self.clip else rate
        scaled = (param.grad + decay * param) * rate
        param.grad.copy_(torch.where((norm != 0) & (grad_norm != 0), scaled, param.grad))
