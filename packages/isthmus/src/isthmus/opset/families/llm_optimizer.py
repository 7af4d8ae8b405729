"""Fused Adam over all parameters, and the norm of all gradients."""

from collections.abc import Iterator
from typing import Any

from isthmus.opset.families._common import denormals
from isthmus.opset.operator import ONLY_NAN, Operator, accumulated, extension
from isthmus.opset.sampling import Array, Case, Maker

_Sizes = tuple[tuple[int, ...], ...]
_SIZES: _Sizes = ((7, 13), (35,), (), (0, 5), (2, 1, 2, 1, 1, 3, 2), (1031,))
_UPDATE = accumulated(32, "a dozen roundings; averages, their quotient and the update")
_NORM = accumulated(32, "blocked sums")
_WIDE = {"bfloat16": "float32", "float16": "float32"}


def _list(
    m: Maker,
    low: float,
    high: float,
    dtype: str | None = None,
    layout: str = "contiguous",
    sizes: _Sizes = _SIZES,
) -> list[Array]:
    return [m.tensor(*size, low=low, high=high, dtype=dtype, layout=layout) for size in sizes]


def _flag(m: Maker, value: float) -> Array:
    return m.values(value, "float32")


def _adam_case(m: Maker, kind: str = "contiguous", *, steps: float = 2.0, amsgrad: bool = False,
               state: str | None = None, grad: str | None = None, master: bool = False, sizes: _Sizes = _SIZES,
               grads: tuple[float, float] = (-2.7, 3.1), averages: tuple[float, float] = (-1.0, 1.0),
               **change: Any) -> Case:  # fmt: skip
    usual: dict[str, Any] = {
        "norm": None, "grad_scale": None, "found_inf": None, "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8,
        "weight_decay": 0.01, "max_norm": 1.0, "decoupled": True, "maximize": False,
    }  # fmt: skip

    def tensors(low: float, high: float, dtype: str | None = None) -> list[Array]:
        return _list(m, low, high, dtype, sizes=sizes)

    squares = (0.05, 2.0) if any(averages) else averages
    return m.case(
        kind, tensors(-2.7, 3.1), tensors(*grads, grad), tensors(*averages, state), tensors(*squares, state),
        tensors(1.0, 2.0, state) if amsgrad else [], tensors(-2.7, 3.1, "float32") if master else [],
        [_flag(m, steps + i % 60) for i in range(len(sizes))], **{**usual, **change}, model="llama",
    )  # fmt: skip


def _adams(m: Maker) -> Iterator[Case]:
    yield _adam_case(m, steps=0.0)
    yield _adam_case(m, steps=7.0, maximize=True, decoupled=False, weight_decay=0.3)
    yield _adam_case(m, amsgrad=True, lr=0.03)
    # Most tensors; its gradients get NaN and infinity.
    yield _adam_case(m, amsgrad=True, grad_scale=_flag(m, 8.0), found_inf=_flag(m, 0.0), master=m.dtype in _WIDE,
                     state=_WIDE.get(m.dtype), lr=0.05)  # fmt: skip
    yield _adam_case(m, norm=_flag(m, 37.0), eps=0.1)
    yield _adam_case(m, norm=_flag(m, 0.5), max_norm=0.75)
    for found in (0.0, 1.0):
        yield _adam_case(
            m, norm=_flag(m, 3.0), grad_scale=_flag(m, 32.0), found_inf=_flag(m, found), weight_decay=0.0
        )
    # Betas, epsilon, clipping and scaling with each other, and with each use of the weights and of the direction.
    yield _adam_case(m, steps=0.0, beta1=0.5, beta2=0.7, eps=0.3, weight_decay=2.0, lr=0.1, maximize=True)
    yield _adam_case(m, steps=999.0, beta1=0.0, beta2=0.99, decoupled=False, weight_decay=0.7, amsgrad=True,
                     norm=_flag(m, 5.0), max_norm=2.3, lr=1.5)  # fmt: skip
    yield _adam_case(m, steps=1.0, beta1=0.8, grad_scale=_flag(m, 0.25), maximize=True, decoupled=False,
                     weight_decay=1.3, amsgrad=True, eps=0.02, lr=0.3)  # fmt: skip
    yield _adam_case(m, steps=30.0, norm=_flag(m, 0.0), max_norm=0.01, found_inf=_flag(m, 0.0), lr=0.0)
    yield _adam_case(m, norm=_flag(m, 100.0), max_norm=3.0, found_inf=_flag(m, 1.0), amsgrad=True)
    if m.dtype in _WIDE:
        yield _adam_case(m, state="float32", grad="float32", master=True, amsgrad=True, decoupled=False,
                         maximize=True, weight_decay=0.4, lr=0.2, eps=0.05)  # fmt: skip
        yield _adam_case(m, state="float32", master=True, found_inf=_flag(m, 1.0))
        yield _adam_case(m, state="float32", amsgrad=True)
        yield _adam_case(m, state="float32", grad="float32", master=True)
        yield _adam_case(m, "large", sizes=((70_001,), (3,)), state="float32", master=True, amsgrad=True)
    if m.dtype == "float32":
        yield _adam_case(m, grad="bfloat16")
        yield _adam_case(m, "large", sizes=((70_001,), (3,)), amsgrad=True, norm=_flag(m, 5.0))
        yield _adam_case(m, "large", sizes=((3,), (2,)) * 150)
        # Squares that are denormal, and almost infinite.
        yield _adam_case(m, "special", grads=(-3e-20, 4e-20), averages=(0.0, 0.0), eps=1e-15)
        yield _adam_case(m, "special", grads=(-5e17, 9e17), eps=1e-15)


def _adam(magnitude: bool = False) -> Any:
    """Adam as published, with an L2 penalty or decoupled weight decay."""

    def update(params: list[Any], grads: list[Any], exp_avgs: list[Any], exp_avg_sqs: list[Any],
               max_exp_avg_sqs: list[Any], masters: list[Any], steps: list[Any], norm: Any, grad_scale: Any,
               found_inf: Any, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
               max_norm: float, decoupled: bool, maximize: bool) -> Any:  # fmt: skip
        skip = found_inf is not None and bool(found_inf)
        clip = 1.0 if norm is None else (max_norm / (norm + 1e-6)).clamp(max=1.0)
        scale = clip / (1.0 if grad_scale is None else grad_scale)
        sizes: list[list[Any]] = [[], [], [], [], [], []]
        for i, param in enumerate(params):
            before = masters[i] if masters else param
            mean, square, step = exp_avgs[i], exp_avg_sqs[i], steps[i] + 1
            grad = grads[i] * scale * (-1 if maximize else 1)
            grad = grad if decoupled else grad + weight_decay * before
            if magnitude:
                grad, mean = abs(grad), abs(mean)
            mean = mean + (1 - beta1) * (grad + mean if magnitude else grad - mean)
            square = square * beta2 + (1 - beta2) * grad * grad
            top = square.maximum(max_exp_avg_sqs[i]) if max_exp_avg_sqs else square
            bottom = (top / (1 - beta2**step)).sqrt() + eps
            change = lr / (1 - beta1**step) * mean / bottom
            kept = before * (1 - lr * weight_decay) if decoupled else before
            if magnitude:
                for found, value in zip(sizes, (abs(kept) + change, mean, square, top, abs(kept) + change, step),
                                        strict=True):  # fmt: skip
                    found.append(value)
            elif not skip:
                written = (param, exp_avgs[i], exp_avg_sqs[i], steps[i])
                for target, value in zip(written, (kept - change, mean, square, step), strict=True):
                    target.copy_(value)
                if max_exp_avg_sqs:
                    max_exp_avg_sqs[i].copy_(top)
                if masters:
                    masters[i].copy_(kept - change)
        if not magnitude:
            return None
        return (*sizes[:3], sizes[3] if max_exp_avg_sqs else [], sizes[4] if masters else [], sizes[5])

    return update


def _norms(m: Maker) -> Iterator[Case]:
    for order in (2.0, 1.0, float("inf"), 3.0):
        yield m.case("contiguous", _list(m, -2.7, 3.1), order, model="llama")
    yield m.case("strided", _list(m, -2.7, 3.1, layout="sliced"), 2.0)
    yield m.case("contiguous", _list(m, 0.1, 3.1), 0.5)
    yield m.case("contiguous", _list(m, -2.7, 3.1), 2.5)
    yield m.case("zero-size", [m.tensor(0), m.tensor(3, 0)], 2.0)
    for order in (1.0, float("inf")):
        yield m.case("special", [m.tensor(5), m.values([1.0, float("nan"), 2.0]), m.tensor(3)], order)
    yield m.case("contiguous", [m.values([0.0, -0.0]), m.values([-7.5, 2.0, 7.25])], float("inf"))
    if m.dtype == "float32":
        yield m.case("large", [m.tensor(7 + i) for i in range(130)], 1.0)
        yield m.case("large", [m.tensor(70_001), m.tensor(0), m.tensor(66_000)], 2.0)
    yield m.case("large", [m.tensor(50007), m.tensor(3)], 2.0)
    for order in (1.0, float("inf")):  # without squares, which would be 0
        yield m.case("special", [denormals(m, 9), denormals(m, 3, 1)], order)


def _norm(grads: list[Any], norm_type: float) -> Any:
    import torch

    each = torch.stack([_one(grad.reshape(-1), norm_type) for grad in grads])
    return torch.linalg.vector_norm(each, norm_type), each


def _one(grad: Any, norm_type: float) -> Any:
    import torch

    return torch.linalg.vector_norm(grad, norm_type) if grad.numel() else grad.sum()


_NORM_DTYPE = "max([accumulator(grad) for grad in grads])"

OPERATORS: list[Operator] = [
    extension("adamw_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
              "Tensor(d!)[] max_exp_avg_sqs, Tensor(e!)[] masters, Tensor(f!)[] steps, Tensor? norm, "
              "Tensor? grad_scale, Tensor? found_inf, float lr, float beta1, float beta2, float eps, "
              "float weight_decay, float max_norm, bool decoupled, bool maximize) -> ()",
              "None", "None", _adams, _UPDATE, reference=_adam(), magnitude=_adam(True), special=ONLY_NAN),
    extension("grad_norm(Tensor[] grads, float norm_type) -> (Tensor total, Tensor each)",
              "((), (len(grads),))", f"({_NORM_DTYPE}, {_NORM_DTYPE})", _norms, _NORM,
              reference=_norm, magnitude=_norm, special=ONLY_NAN, denormal=False),
]  # fmt: skip
