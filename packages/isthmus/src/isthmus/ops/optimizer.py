"""Fused Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019) over all parameters."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from isthmus.ops import cpu
from isthmus.ops.gradients import check_finite, grad_norm
from isthmus.ops.registration import operator

Tensors = list[torch.Tensor]


@operator("adamw_")
def _adamw_(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, max_exp_avg_sqs: Tensors,
    masters: Tensors, steps: Tensors, norm: torch.Tensor | None, grad_scale: torch.Tensor | None,
    found_inf: torch.Tensor | None, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
    max_norm: float, decoupled: bool, maximize: bool,
) -> None:  # fmt: skip
    if found_inf is not None and bool(found_inf):
        return
    scale: Any = -1.0 if maximize else 1.0
    widest = torch.float64 if any(each.dtype is torch.float64 for each in params) else torch.float32
    if norm is not None:
        scale = scale * (max_norm / (norm.to(widest) + 1e-6)).clamp(max=1.0)
    if grad_scale is not None:
        scale = scale / grad_scale.to(widest)
    for i, param in enumerate(params):
        value = masters[i] if masters else param
        wide = value.to(torch.promote_types(value.dtype, torch.float32))
        kind, step = wide.dtype, steps[i].add_(1)
        grad = grads[i].to(kind) * scale
        if not decoupled:
            grad = grad + weight_decay * wide
        mean = exp_avgs[i].to(kind).lerp(grad, 1 - beta1)
        square = (exp_avg_sqs[i].to(kind) * beta2).addcmul(grad, grad, value=1 - beta2)
        top = square
        if max_exp_avg_sqs:
            top = torch.maximum(max_exp_avg_sqs[i].to(kind), square)
            max_exp_avg_sqs[i].copy_(top)
        first, second = _correction(step.to(kind), beta1), _correction(step.to(kind), beta2)
        kept = wide * (1 - lr * weight_decay) if decoupled else wide
        after = kept - (lr / first) * (mean / (top.sqrt() / second.sqrt() + eps))
        for target, new in ((exp_avgs[i], mean), (exp_avg_sqs[i], square), (value, after), (param, after)):
            target.copy_(new)


def _correction(step: torch.Tensor, beta: float) -> torch.Tensor:
    """``1 - beta ** step`` without cancellation, so float32 suffices."""
    return -torch.expm1(step * (math.log(beta) if beta else -math.inf))


def _refuses(params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, tops: Tensors,
             masters: Tensors, *_: Any) -> str:  # fmt: skip
    if any(each.dtype != torch.float32 for each in masters) or (masters and params[0].dtype == torch.float64):
        return "no kernel for master weights that are not float32"
    for param, grad, mean, square in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        if not _is_served(param.dtype, grad.dtype, mean.dtype) or square.dtype != mean.dtype:
            return f"no kernel for {param.dtype} with a gradient of {grad.dtype} and a state of {mean.dtype}"
    return ""


def _is_served(param: torch.dtype, grad: torch.dtype, state: torch.dtype) -> bool:
    if param == torch.float64:
        return grad == state == torch.float64
    if param not in cpu.FLOATS or grad not in cpu.FLOATS or grad == torch.float64:
        return False
    if grad == param:
        return state in (param, torch.float32)
    return state == torch.float32 and torch.float32 in (param, grad)


cpu.add(_adamw_, _refuses)


@torch.no_grad()
def adamw_(
    params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor], exp_avgs: Sequence[torch.Tensor],
    exp_avg_sqs: Sequence[torch.Tensor], steps: Sequence[torch.Tensor], *,
    max_exp_avg_sqs: Sequence[torch.Tensor] = (), masters: Sequence[torch.Tensor] = (), lr: float = 1e-3,
    beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.01,
    norm: torch.Tensor | None = None, max_norm: float = 0.0, grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None, decoupled: bool = True, maximize: bool = False,
) -> None:  # fmt: skip
    """One in-place step of AdamW over tensors of one device. The gradients are not modified.

    Args:
        params: parameters.
        grads: gradients, shaped like their parameters; same dtype, or one of the two is float32.
        exp_avgs: running means of the gradients, in the parameters' dtype or float32.
        exp_avg_sqs: running means of their squares, in the dtype of ``exp_avgs``.
        steps: 0-dim, one per parameter; each is increased by 1.
        max_exp_avg_sqs: running maxima of ``exp_avg_sqs``, for AMSGrad; empty without it.
        masters: float32 master weights; empty without them.
        lr: learning rate.
        beta1: decay of the first mean.
        beta2: decay of the second mean.
        eps: added to the square root.
        weight_decay: coefficient of the decoupled decay, or of the L2 penalty.
        norm: 0-dim norm of all unscaled gradients; they are multiplied by ``min(1, max_norm / (norm + 1e-6))``.
        max_norm: limit of the norm.
        grad_scale: 0-dim divisor of the gradients.
        found_inf: 0-dim; the step is skipped unless it is 0.
        decoupled: AdamW; False is Adam with an L2 penalty.
        maximize: maximize the objective instead of minimizing it.
    """
    if params:
        lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, masters, steps)
        _adamw_(
            *map(_shards, lists), norm, grad_scale, found_inf, lr, beta1, beta2, eps, weight_decay,
            max_norm, decoupled, maximize,
        )  # fmt: skip


def _shards(tensors: Sequence[torch.Tensor]) -> Tensors:
    """The local shards of distributed tensors; other tensors unchanged."""
    return [each.to_local() if hasattr(each, "to_local") else each for each in tensors]


class AdamW(torch.optim.AdamW):
    """:class:`torch.optim.AdamW` in one pass over all parameters, with optional clipping by the gradient norm.

    A drop-in replacement: the same arguments (without ``foreach``, ``fused``, ``capturable`` and ``differentiable``),
    parameter groups, state and GradScaler protocol; state dicts load in both directions. Unlike PyTorch's AdamW it
    does not modify the gradients when it clips or unscales them.

    Args:
        params: parameters, or groups of them.
        lr: learning rate, a number or a tensor of one element.
        betas: decay of the running means of the gradient and of its square.
        eps: added to the square root.
        weight_decay: decoupled; an L2 penalty with ``decoupled=False``.
        amsgrad: divide by the running maximum of the mean of squares.
        maximize: maximize the objective instead of minimizing it.
        max_norm: clip the total gradient norm of all groups to this value; None disables clipping.
        norm_type: order of the norm.
        error_if_nonfinite: raise if the norm is NaN or infinite.
        decoupled: AdamW; False is Adam with an L2 penalty.
        state_dtype: dtype of the running means, such as ``torch.float32`` for 16-bit parameters; None is the
            parameter's dtype.
        master_weights: keep float32 master weights in the state, as ``master_param``.

    Attributes:
        last_grad_norm: 0-dim gradient norm of the last step, before clipping; None without ``max_norm``.
    """

    _SETTINGS = (
        "max_norm", "norm_type", "error_if_nonfinite", "state_dtype", "master_weights", "last_grad_norm",
        "_decoupled", "_step_supports_amp_scaling",
    )  # fmt: skip

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        decoupled: bool = True,
        state_dtype: torch.dtype | None = None,
        master_weights: bool = False,
    ) -> None:
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"AdamW: max_norm is {max_norm}; it must be positive or None")
        self.max_norm, self.norm_type, self.error_if_nonfinite = max_norm, norm_type, error_if_nonfinite
        self.state_dtype, self.master_weights = state_dtype, master_weights
        self.last_grad_norm: torch.Tensor | None = None
        self._decoupled = decoupled
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, fused=True
        )  # fused: the step counters are on the parameters' device
        self._set_decoupled()

    def __getstate__(self) -> dict[str, Any]:
        kept = super().__getstate__()
        return {**kept, **{name: getattr(self, name) for name in self._SETTINGS}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._set_decoupled()
        for group in self.param_groups:
            group["fused"] = True
            for param in group["params"]:
                if kept := self.state.get(param):
                    kept["step"] = kept["step"].to(device=param.device, dtype=torch.float32)

    def _set_decoupled(self) -> None:
        for group in self.param_groups:
            group["decoupled_weight_decay"] = self._decoupled

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of this class or of ``torch.optim.AdamW``, without rounding float32 state."""
        super().load_state_dict(state_dict)
        ids = (each for group in state_dict["param_groups"] for each in group["params"])
        params = (each for group in self.param_groups for each in group["params"])
        for index, param in zip(ids, params, strict=True):
            for key, value in state_dict["state"].get(index, {}).items():
                kind = torch.float32 if key == "master_param" else self.state_dtype
                if key != "step" and kind is not None:
                    self.state[param][key] = value.to(device=param.device, dtype=kind, copy=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Perform one optimization step.

        Args:
            closure: reevaluates the model and returns the loss; called with gradients enabled.

        Returns:
            The result of the closure.

        Raises:
            RuntimeError: a gradient is sparse, or the norm is not finite and ``error_if_nonfinite``.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        parts = [
            (group, device, used, [_gradient(each) for each in used])  # all are checked before any update
            for group in self.param_groups
            for device, used in _by_device(group["params"]).items()
        ]
        norm = self._norm(scale, found)
        for group, device, used, grads in parts:
            self._update(group, used, grads, *[_move_to(each, device) for each in (norm, scale, found)])
        return loss

    def _norm(self, scale: torch.Tensor | None, found: torch.Tensor | None) -> torch.Tensor | None:
        if self.max_norm is None:
            return None
        grads = [
            each.grad for group in self.param_groups for each in group["params"] if each.grad is not None
        ]
        norm = grad_norm(grads, self.norm_type)
        if scale is not None:
            norm = norm / scale.to(norm.device)
        if self.error_if_nonfinite and not (found is not None and bool(found)):
            check_finite(norm, self.norm_type)
        self.last_grad_norm = norm
        return norm

    def _update(
        self, group: dict[str, Any], params: Tensors, grads: Tensors, norm: Any, scale: Any, found: Any
    ) -> None:
        states = [self.state[each] or self._init_state(each, group["amsgrad"]) for each in params]
        adamw_(
            params,
            grads,
            [each["exp_avg"] for each in states],
            [each["exp_avg_sq"] for each in states],
            [each["step"] for each in states],
            max_exp_avg_sqs=[each["max_exp_avg_sq"] for each in states] if group["amsgrad"] else (),
            masters=self._masters(params, states),
            lr=float(group["lr"]),
            beta1=float(group["betas"][0]),
            beta2=float(group["betas"][1]),
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            norm=norm,
            max_norm=self.max_norm or 0.0,
            grad_scale=scale,
            found_inf=found,
            decoupled=group["decoupled_weight_decay"],
            maximize=group["maximize"],
        )

    def _init_state(self, param: torch.Tensor, amsgrad: bool) -> dict[str, torch.Tensor]:
        if not param.is_floating_point():
            raise ValueError(f"AdamW: a parameter is {param.dtype}; it must be real (see torch.view_as_real)")
        state = self.state[param]
        state["step"] = torch.zeros((), dtype=torch.float32, device=param.device)
        for key in ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else [])):
            state[key] = torch.zeros_like(param, dtype=self.state_dtype, memory_format=torch.preserve_format)
        return state

    def _masters(self, params: Tensors, states: list[dict[str, torch.Tensor]]) -> Tensors:
        if not self.master_weights:
            return []
        for param, state in zip(params, states, strict=True):
            if "master_param" not in state:
                state["master_param"] = param.detach().to(torch.float32, copy=True)
        return [each["master_param"] for each in states]


def _gradient(param: torch.Tensor) -> torch.Tensor:
    grad = param.grad
    assert grad is not None
    if grad.layout != torch.strided:
        raise RuntimeError("AdamW: a gradient is sparse; use torch.optim.SparseAdam for its parameter")
    return grad


def _by_device(params: Tensors) -> dict[torch.device, Tensors]:
    found: dict[torch.device, Tensors] = {}
    for each in params:
        if each.grad is not None:
            found.setdefault(each.device, []).append(each)
    return found


def _move_to(value: torch.Tensor | None, device: torch.device) -> torch.Tensor | None:
    return None if value is None else value.to(device, non_blocking=True)
