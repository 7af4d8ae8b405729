"""Adam with the arguments of apex and of Transformer Engine."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import torch

from isthmus.ops.optimizer import adamw_

# Names in the order of the operators' arguments.
_STATE = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "master_param")


class FusedAdam(torch.optim.Optimizer):
    """FusedAdam by :func:`isthmus.ops.adamw_`; one step counter per group.

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
        capturable: graphs may capture ``step()``: ``lr`` and the step counter become tensors on the device.
        master_weights: keep float32 master weights in the state, as ``master_param``.
        master_weight_dtype: float32.
        exp_avg_dtype: dtype of the running mean, float32 or bfloat16.
        exp_avg_sq_dtype: dtype of the mean of squares, float32 or bfloat16.
        use_decoupled_grad: gradients are ``decoupled_grad`` of the parameters, not ``grad``.
        store_param_remainders: ignored: master weights take 4 bytes each.

    Raises:
        ValueError: a dtype that needs the scales of the real Transformer Engine.
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
        *,
        master_weight_dtype: torch.dtype = torch.float32,
        exp_avg_dtype: torch.dtype = torch.float32,
        exp_avg_sq_dtype: torch.dtype = torch.float32,
        use_decoupled_grad: bool = False,
        store_param_remainders: bool = False,
    ) -> None:
        _check_dtypes(master_weight_dtype, exp_avg_dtype, exp_avg_sq_dtype)
        defaults = {
            "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad,
        }  # fmt: skip
        super().__init__(params, defaults)
        self.adam_w_mode = int(adam_w_mode)
        self.set_grad_none, self.capturable, self.master_weights = set_grad_none, capturable, master_weights
        self._dtypes = {"exp_avg": exp_avg_dtype, "exp_avg_sq": exp_avg_sq_dtype}
        self.use_decoupled_grad = use_decoupled_grad

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of an optimizer; those of apex and of Transformer Engine have no ``amsgrad``."""
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("amsgrad", False)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Clear the gradients; the default is ``set_grad_none``."""
        to_none = self.set_grad_none if set_to_none is None else set_to_none
        super().zero_grad(to_none)
        for param in (each for group in self.param_groups for each in group["params"]):
            if self.use_decoupled_grad and self._grad(param) is not None:
                param.decoupled_grad = None if to_none else param.decoupled_grad.zero_()

    def _grad(self, param: torch.Tensor) -> torch.Tensor | None:
        return getattr(param, "decoupled_grad", None) if self.use_decoupled_grad else param.grad

    @torch.no_grad()
    def step(
        self, closure: Callable[[], Any] | None = None, grads: Any = None, output_params: Any = None,
        scale: Any = None, grad_norms: Any = None, grad_scaler: Any = None,
    ) -> Any:  # fmt: skip
        """Perform one step; the other arguments are apex's deprecated ones.

        Raises:
            RuntimeError: a deprecated argument is given, or a graph captures the step without ``capturable`` or
                before the first step.
        """
        if any(each is not None for each in (grads, output_params, scale, grad_norms, grad_scaler)):
            raise RuntimeError(
                "FusedAdam.step takes a closure only; call GradScaler.step(optimizer) for scaled gradients"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        parts = [
            (group, used)
            for group in self.param_groups
            if (used := [each for each in group["params"] if self._grad(each) is not None])
        ]
        self._check_capture(parts)
        for group, params in parts:
            self._update(group, params)
        return loss

    def _check_capture(self, parts: Iterable[tuple[dict[str, Any], list[torch.Tensor]]]) -> None:
        if not torch.chip.is_current_stream_capturing():  # type: ignore[attr-defined]
            return
        if not self.capturable:
            raise RuntimeError(
                "a graph would repeat the number of the step; pass capturable=True to FusedAdam"
            )
        for group, params in parts:
            scalars = [group.get(name) for name in ("step", "lr")]
            states = [
                self.state.get(each, {}).keys() >= set(self._names(group["amsgrad"])) for each in params
            ]
            if not all(states) or not all(_is_scalar_on(each, params[0].device) for each in scalars):
                raise RuntimeError(
                    "a graph would reset the state or lr at each replay; call FusedAdam.step() once before, and "
                    "change lr by fill_()"
                )

    def _names(self, amsgrad: bool) -> list[str]:
        """The names of a parameter's state."""
        unused = {"max_exp_avg_sq": not amsgrad, "master_param": not self.master_weights}
        return [name for name in _STATE if not unused.get(name)]

    def _update(self, group: dict[str, Any], params: list[torch.Tensor]) -> None:
        for each in params:
            self._fill(each, group["amsgrad"])
        names = self._names(group["amsgrad"])
        lists = [params, [self._grad(each) for each in params]]
        lists += [[self.state[each][name] for each in params] if name in names else [] for name in _STATE]
        settings = {"eps": group["eps"], "weight_decay": group["weight_decay"]}
        settings |= {"beta1": group["betas"][0], "beta2": group["betas"][1]}
        update = self._captured if self.capturable else self._at_once
        update(group, *lists, **settings)

    def _at_once(self, group: dict[str, Any], *lists: Any, **settings: Any) -> None:
        params, grads, means, squares, tops, masters = lists
        count = float(group.get("step", 0))
        # At an infinite step the bias corrections are 1.
        start = count if group["bias_correction"] else float("inf")
        group["step"] = int(count) + 1
        steps = torch.full((len(params),), start, device=params[0].device).unbind(0)
        settings |= {"lr": float(group["lr"]), "decoupled": bool(self.adam_w_mode)}
        adamw_(params, grads, means, squares, steps, max_exp_avg_sqs=tops, masters=masters, **settings)

    def _captured(self, group: dict[str, Any], *lists: Any, **settings: Any) -> None:
        """Update as :meth:`_at_once` does, by PyTorch's operator, which reads step and rate from the device."""
        params, *state, masters = ([getattr(each, "_local_tensor", each) for each in some] for some in lists)
        for name in ("step", "lr"):
            group[name] = torch.as_tensor(group.get(name, 0), dtype=torch.float32, device=params[0].device)
        group["step"] += 1
        step = group["step"] if group["bias_correction"] else torch.full_like(group["step"], torch.inf)
        values, grads, *means = (
            [_like(each, param) for each, param in zip(some, params, strict=True)] if some else []
            for some in (masters or params, *state)
        )
        settings |= {"lr": group["lr"], "amsgrad": group["amsgrad"], "maximize": False}
        update: Any = torch._fused_adamw_ if self.adam_w_mode else torch._fused_adam_
        update(values, grads, *means, [step] * len(params), **settings)
        kept = chain(params, masters or params, *state[1:])
        for target, result in zip(kept, chain(values, values, *means), strict=True):
            if target.data_ptr() != result.data_ptr():
                target.copy_(result)

    def initialize_state(self, param: torch.Tensor, store_param_remainders: bool = False) -> None:
        """Create the state of a parameter; ``store_param_remainders`` is ignored."""
        self._fill(param, amsgrad=False)

    def _fill(self, param: torch.Tensor, amsgrad: bool) -> None:
        state = self.state[param]
        for name in (each for each in self._names(amsgrad) if each not in state):
            kind = self._dtype(param, name)
            if name == "master_param":
                state[name] = param.detach().to(kind, copy=True)
            else:
                state[name] = torch.zeros_like(param, dtype=kind, memory_format=torch.preserve_format)

    def _dtype(self, param: torch.Tensor, name: str) -> torch.dtype:
        kind = self._dtypes.get(name, torch.float32)
        return _wide(param) if kind is torch.float32 else kind

    def get_unscaled_state(self, param: torch.Tensor, state_name: str) -> torch.Tensor:
        """Return a state of a parameter, such as ``"exp_avg"``, in float32."""
        return self.state[param][state_name].float()

    def set_scaled_state(self, param: torch.Tensor, state_name: str, unscaled_state: torch.Tensor) -> None:
        """Set a state of a parameter from float32."""
        self._fill(param, amsgrad=False)
        self.state[param][state_name].copy_(unscaled_state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state in this optimizer's dtypes of the state, not in the parameter's.

        Raises:
            ValueError: master weights as remainders of the parameters' bits, which ``store_param_remainders`` saves.
        """
        for value in (each.get("master_param") for each in state_dict["state"].values()):
            if isinstance(value, torch.Tensor) and not value.is_floating_point():
                raise ValueError(
                    f"FusedAdam: the state's master_param is {value.dtype}, the remainders of a parameter's bits; "
                    "save it with store_param_remainders=False"
                )
        super().load_state_dict(state_dict)
        ids = (each for group in state_dict["param_groups"] for each in group["params"])
        params = (each for group in self.param_groups for each in group["params"])
        for index, param in zip(ids, params, strict=True):
            for key, value in state_dict["state"].get(index, {}).items():
                if isinstance(value, torch.Tensor) and value.shape == param.shape:
                    kind = self._dtype(param, key)
                    self.state[param][key] = value.to(param.device, kind, copy=True)


def _is_scalar_on(value: Any, device: torch.device) -> bool:
    return isinstance(value, torch.Tensor) and value.device == device and value.dtype == torch.float32


def _like(tensor: torch.Tensor, param: torch.Tensor) -> torch.Tensor:
    """The tensor in the widened dtype, with the strides of a copy of the parameter: the operator ignores strides."""
    wide = tensor.to(_wide(tensor))
    if wide.is_contiguous() and param.is_contiguous():
        return wide
    fitting = torch.empty_like(param, dtype=wide.dtype)
    return wide if wide.stride() == fitting.stride() else fitting.copy_(wide)


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def _check_dtypes(master: torch.dtype, *means: torch.dtype) -> None:
    for kind, served in (
        (master, (torch.float32,)),
        *((each, (torch.float32, torch.bfloat16)) for each in means),
    ):
        if kind not in served:
            raise ValueError(
                f"FusedAdam: a state of {kind} needs the scales of the real Transformer Engine; "
                f"use {' or '.join(map(str, served))}"
            )
