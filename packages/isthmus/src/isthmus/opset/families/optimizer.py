"""Fused optimizers and the gradient scaler of mixed precision."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.operator import EXACT, Operator, Tolerance, accumulated, op
from isthmus.opset.sampling import Array, Case, Maker

_SIZES: tuple[tuple[int, ...], ...] = ((7, 13), (35,), (), (3, 1, 17))
_UPDATE = accumulated(32, "a dozen roundings; averages, their quotient and the update")
_SCALE_DTYPE = "float32"


def _list(m: Maker, low: float, high: float, layout: str = "contiguous") -> list[Array]:
    return [m.tensor(*size, low=low, high=high, layout=layout) for size in _SIZES]


def _flag(m: Maker, value: float) -> Array:
    return m.values(value, _SCALE_DTYPE)


def _scaler(m: Maker, values: dict[str, float]) -> dict[str, Any]:
    return {name: _flag(m, value) for name, value in values.items()}


def _adams(m: Maker) -> Iterator[Case]:
    usual: dict[str, Any] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8,
                             "amsgrad": False, "maximize": False}  # fmt: skip
    for steps, change in ((1.0, {}), (7.0, {"maximize": True}), (3.0, {"amsgrad": True, "lr": 0.03}),
                          (5.0, {"eps": 0.1, "weight_decay": 0.3}), (2.0, {"weight_decay": 0.0})):  # fmt: skip
        largest = _list(m, 1.0, 2.0) if change.get("amsgrad") else []
        yield m.case("contiguous", _list(m, -2.7, 3.1), _list(m, -2.7, 3.1), _list(m, -1, 1), _list(m, 0.05, 2),
                     largest, [_flag(m, steps + i) for i in range(len(_SIZES))], **{**usual, **change},
                     model="llama")  # fmt: skip
    for found in (0.0, 1.0):
        yield m.case("contiguous", _list(m, -2.7, 3.1), _list(m, -90, 90), _list(m, -1, 1), _list(m, 0.05, 2), [],
                     [_flag(m, 2.0) for _ in _SIZES], **usual, grad_scale=_flag(m, 32.0),
                     found_inf=_flag(m, found), model="llama")  # fmt: skip
    # A learning rate whose step shows in 16 bits; the flags together; late steps; with a scale or a flag alone.
    far = {**usual, "lr": 0.3, "weight_decay": 0.4}
    for steps, change, scaler in (
        (1.0, {"beta1": 0.5, "beta2": 0.75, "amsgrad": True, "maximize": True},
         {"grad_scale": 2.0**17, "found_inf": 0.0}),
        (1.0, {"beta1": 0.0, "beta2": 0.6, "maximize": True}, {"grad_scale": 0.25}),
        (2.0, {"beta1": 0.7, "beta2": 0.0, "eps": 0.2, "weight_decay": 0.0}, {"found_inf": 0.0}),
        (1000.0, {"amsgrad": True, "lr": 1.0, "weight_decay": 1.0}, {}),
        (4.0, {"maximize": True}, {"found_inf": 1.0}),
        (1000.0, {"amsgrad": True, "maximize": True}, {"grad_scale": 2.0, "found_inf": 1.0}),
    ):  # fmt: skip
        settings: dict[str, Any] = {**far, **change}
        largest = _list(m, 0.05, 2) if settings["amsgrad"] else []
        yield m.case("special", _list(m, -2.7, 3.1), _list(m, -2.7, 3.1), _list(m, -1, 1), _list(m, 0.05, 2),
                     largest, [_flag(m, steps + 3 * i) for i in range(len(_SIZES))], **settings,
                     **_scaler(m, scaler))  # fmt: skip
    # State of a parameter without a gradient: only its decay is left.
    zeros = [_list(m, 0, 0) for _ in range(3)]
    yield m.case("special", _list(m, -2.7, 3.1), *zeros, [], [_flag(m, 1.0) for _ in _SIZES], **far)


def _adam(decoupled: bool, magnitude: bool = False) -> Any:
    """Adam as published, with decoupled weight decay (AdamW) or an L2 penalty."""

    def update(self: list[Any], grads: list[Any], exp_avgs: list[Any], exp_avg_sqs: list[Any],
               max_exp_avg_sqs: list[Any], state_steps: list[Any], lr: float, beta1: float, beta2: float,
               weight_decay: float, eps: float, amsgrad: bool, maximize: bool, grad_scale: Any = None,
               found_inf: Any = None) -> Any:  # fmt: skip
        skip = found_inf is not None and bool(found_inf)
        sizes: list[list[Any]] = [[], [], [], [], []]
        for i, param in enumerate(self):
            mean, square, step = exp_avgs[i], exp_avg_sqs[i], float(state_steps[i])
            if grad_scale is not None and not skip:
                grads[i].div_(grad_scale)
            grad = -grads[i] if maximize else grads[i]
            if not decoupled:
                grad = grad + weight_decay * param
            if magnitude:
                grad, mean = abs(grad), abs(mean)
            mean = mean + (1 - beta1) * (grad + mean if magnitude else grad - mean)
            square = square * beta2 + (1 - beta2) * grad * grad
            top = square.maximum(max_exp_avg_sqs[i]) if amsgrad else square
            bottom = (top / (1 - beta2**step)).sqrt() + eps
            change = lr / (1 - beta1**step) * mean / bottom
            kept = param * (1 - lr * weight_decay) if decoupled else param
            if magnitude:
                for found, value in zip(
                    sizes, (abs(param) + change, grads[i].abs(), mean, square, top), strict=True
                ):
                    found.append(value)
            elif not skip:
                param.copy_(kept - change)
                exp_avgs[i].copy_(mean)
                exp_avg_sqs[i].copy_(square)
                if amsgrad:
                    max_exp_avg_sqs[i].copy_(top)
        return (*sizes[:4], sizes[4] if amsgrad else []) if magnitude else None

    return update


def _sgds(m: Maker) -> Iterator[Case]:
    for change in ({"momentum": 0.0}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "dampening": 0.1},
                   {"momentum": 0.9, "is_first_step": True}, {"momentum": 0.9, "maximize": True}):  # fmt: skip
        usual: dict[str, Any] = {"weight_decay": 0.01, "lr": 0.1, "dampening": 0.0, "nesterov": False,
                                 "maximize": False, "is_first_step": False}  # fmt: skip
        buffers = _list(m, -1, 1) if change["momentum"] else []
        yield m.case("contiguous", _list(m, -2.7, 3.1), _list(m, -2.7, 3.1), buffers, **{**usual, **change},
                     model="resnet")  # fmt: skip
    for found in (0.0, 1.0):
        yield m.case("contiguous", _list(m, -2.7, 3.1), _list(m, -90, 90), _list(m, -1, 1), **usual, momentum=0.9,
                     grad_scale=_flag(m, 32.0), found_inf=_flag(m, found))  # fmt: skip
    # The flags together. The buffers of the first step are not read: PyTorch does not initialize them.
    usual = {**usual, "weight_decay": 0.4, "momentum": 0.7}
    for flags, scaler in (
        ({"maximize": True, "nesterov": True}, {"grad_scale": 0.25}),
        ({"maximize": True, "momentum": 0.0, "lr": 1.0}, {"grad_scale": 2.0**17, "found_inf": 0.0}),
        ({"is_first_step": True, "dampening": 0.3, "maximize": True}, {"found_inf": 0.0}),
        ({"is_first_step": True, "nesterov": True, "weight_decay": 0.0}, {}),
        ({"momentum": 1.0, "dampening": 0.6, "lr": 0.3, "maximize": True}, {}),
        ({"is_first_step": True}, {"grad_scale": 2.0, "found_inf": 1.0}),
        ({"momentum": 0.9}, {"found_inf": 1.0}),
    ):  # fmt: skip
        settings: dict[str, Any] = {**usual, **flags}
        buffers = _list(m, -1, 1) if settings["momentum"] else []
        if settings["is_first_step"]:
            buffers = [m.values(np.full(size, np.nan)) for size in _SIZES]
        yield m.case("special", _list(m, -2.7, 3.1), _list(m, -2.7, 3.1), buffers, **settings,
                     **_scaler(m, scaler))  # fmt: skip


def _sgd(magnitude: bool = False) -> Any:
    def update(self: list[Any], grads: list[Any], momentum_buffer_list: list[Any], weight_decay: float,
               momentum: float, lr: float, dampening: float, nesterov: bool, maximize: bool, is_first_step: bool,
               grad_scale: Any = None, found_inf: Any = None) -> Any:  # fmt: skip
        sizes: list[list[Any]] = [[], [], []]
        skip = found_inf is not None and bool(found_inf)
        for i, param in enumerate(self):
            if grad_scale is not None and not skip:
                grads[i].div_(grad_scale)
            grad = (-grads[i] if maximize else grads[i]) + weight_decay * param
            grad = grads[i].abs() + weight_decay * param.abs() if magnitude else grad
            buffer = grad
            if momentum:
                old = momentum_buffer_list[i].abs() if magnitude else momentum_buffer_list[i]
                buffer = grad if is_first_step else momentum * old + (1 - dampening) * grad
                sizes[2].append(buffer)
            step = grad + momentum * buffer if nesterov else buffer
            sizes[0].append(param.abs() + lr * step)
            sizes[1].append(grads[i].abs())
            if not (magnitude or skip):
                param.copy_(param - lr * step)
                if momentum:
                    momentum_buffer_list[i].copy_(buffer)
        return tuple(sizes) if magnitude else None

    return update


def _unscales(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", _list(m, -90, 90), _flag(m, 0.0), _flag(m, 1 / 64), model="llama")
    yield m.case("strided", _list(m, -90, 90, "transposed"), _flag(m, 0.0), _flag(m, 0.3))
    for bad in (np.inf, -np.inf, np.nan):
        values = m.tensor(3, 7).view.astype(np.float64)
        values[2, 6] = bad
        yield m.case("special", [m.tensor(5), m.values(values)], _flag(m, 0.0), _flag(m, 0.5), model="llama")
    yield m.case("contiguous", [m.tensor(5)], _flag(m, 1.0), _flag(m, 0.5))
    yield m.case("contiguous", [m.tensor(0, 5), m.tensor(7), m.tensor()], _flag(m, 0.0), _flag(m, 1.0))
    yield m.case("contiguous", [m.tensor(7), m.tensor(0)], _flag(m, 0.0), _flag(m, 3.7))
    if m.dtype == "float16":  # finite, but not if multiplied
        yield m.case("special", [m.values([6e4, -2.0])], _flag(m, 0.0), _flag(m, 2.0))
    if m.dtype == "float32":
        many = [m.tensor(n, low=-90, high=90) for n in (0, *range(1, 131), 65_539)]
        many[-1].view[-1] = np.inf
        yield m.case("large", many, _flag(m, 0.0), _flag(m, 0.3))
    if m.dtype != "float16":  # finite, but not in float16
        yield m.case("special", [m.values([1e5, -3e30, 2.0])], _flag(m, 0.0), _flag(m, 0.5))
        yield m.case(
            "special", [m.values([3e38, 3e38, 2.0])], _flag(m, 0.0), _flag(m, 0.5)
        )  # their sum is not
        # The inverses of the least scale after many overflows, and of the largest.
        yield m.case("special", [m.tensor(5)], _flag(m, 0.0), _flag(m, 2.0**17))
        yield m.case("special", [m.values([1e30, -3e30, 2e36])], _flag(m, 0.0), _flag(m, 2.0**-127))


def _scales(m: Maker) -> Iterator[Case]:
    for tracker, found, interval in ((3, 0.0, 2000), (1999, 0.0, 2000), (5, 1.0, 2000), (0, 0.0, 1)):
        yield m.case("0-dim", _flag(m, 1024.0), m.values(tracker, "int32"), _flag(m, found), 2.0, 0.5, interval,
                     model="llama")  # fmt: skip
    for tracker, found, growth, backoff, interval in (
        (1998, 0.0, 1.5, 0.25, 2000), (6, 0.0, 1.5, 0.25, 7), (6, 1.0, 1.5, 0.125, 7), (0, 1.0, 3.0, 1.0, 1),
        (4, 0.0, 1.50390625, 0.5, 5), (4, 1.0, 2.0, 0.2509765625, 5),  # factors that bfloat16 rounds
    ):  # fmt: skip
        yield m.case(
            "0-dim", _flag(m, 0.75), m.values(tracker, "int32"), _flag(m, found), growth, backoff, interval
        )
    # A scale does not grow to infinity.
    yield m.case("special", _flag(m, 2.0**127), m.values(4, "int32"), _flag(m, 0.0), 2.0, 0.5, 5)


def _unscale(self: list[Any], found_inf: Any, inv_scale: Any) -> None:
    for grad in self:
        if not bool(grad.isfinite().all()):
            found_inf.fill_(1)
        grad.mul_(inv_scale)


def _scale(self: Any, growth_tracker: Any, found_inf: Any, scale_growth_factor: float, scale_backoff_factor: float,
           growth_interval: int) -> None:  # fmt: skip
    if found_inf:
        self.mul_(scale_backoff_factor)
        growth_tracker.zero_()
    elif int(growth_tracker) + 1 == growth_interval:
        if float(self) * scale_growth_factor <= float(np.finfo(np.float32).max):
            self.mul_(scale_growth_factor)
        growth_tracker.zero_()
    else:
        growth_tracker.add_(1)


_WRITTEN = ("None", "None")

OPERATORS: list[Operator] = [
    op("_fused_adamw_", dt.FLOATS, *_WRITTEN, _adams, _UPDATE, reference=_adam(True), magnitude=_adam(True, True),
       strided=False),
    op("_fused_adam_", dt.FLOATS, *_WRITTEN, _adams, _UPDATE, reference=_adam(False), magnitude=_adam(False, True),
       strided=False),
    op("_fused_sgd_", dt.FLOATS, *_WRITTEN, _sgds, _UPDATE, reference=_sgd(), magnitude=_sgd(True),
       strided=False),
    op("_amp_foreach_non_finite_check_and_unscale_", ("float16", "bfloat16", "float32"), *_WRITTEN, _unscales,
       Tolerance(0.501, 0, "one product"), reference=_unscale),
    op("_amp_update_scale_", ("float32",), *_WRITTEN, _scales, EXACT, reference=_scale),
]  # fmt: skip
