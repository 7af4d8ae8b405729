"""SGD with apex's arguments."""

from typing import Any

import torch


class FusedSGD(torch.optim.SGD):
    """:class:`torch.optim.SGD` with apex's arguments.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        momentum: momentum factor.
        dampening: dampening of the momentum.
        weight_decay: L2 penalty.
        nesterov: Nesterov's momentum.
        wd_after_momentum: not supported.
        materialize_master_grads: ignored.
        set_grad_none: ``zero_grad()`` sets gradients to None.

    Raises:
        NotImplementedError: ``wd_after_momentum``.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        wd_after_momentum: bool = False,
        materialize_master_grads: bool = True,
        set_grad_none: bool = False,
    ) -> None:
        if wd_after_momentum:
            raise NotImplementedError("FusedSGD: wd_after_momentum=True is not supported; omit it")
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov)
        self.set_grad_none = set_grad_none

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Clear the gradients; the default is ``set_grad_none``."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)
