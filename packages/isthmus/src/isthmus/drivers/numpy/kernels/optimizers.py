"""Lists of tensors and optimizers."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

import math
from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Function, Maybe, double, like, register, wide, writes
from isthmus.drivers.numpy.kernels.pointwise import FLOATING, UNARY, addcdiv, addcmul, divide, lerp, power
from isthmus.drivers.numpy.kernels.reductions import vector_norm


def each(f: Function) -> Function:
    return lambda xs: [f(x) for x in xs]


def with_one(f: Function) -> Function:
    return lambda xs, y: [f(x, y) for x in xs]


def with_each(f: Function) -> Function:
    return lambda xs, ys: [f(x, y) for x, y in zip(xs, ys, strict=True)]


def quotient(x: Array, y: Any) -> Any:
    return divide(x, np.asarray(y), None)


ARITHMETIC: dict[str, Function] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": quotient}
PAIRS: dict[str, Function] = {
    "mul": np.multiply,
    "div": quotient,
    "maximum": np.maximum,
    "minimum": np.minimum,
}

register({f"_foreach_{name}": each(UNARY[name]) for name in ("abs", "neg", "sign")})
register(
    {
        f"_foreach_{name}": each(lambda x, f=FLOATING[name]: f(double(x)))
        for name in ("exp", "sqrt", "rsqrt", "reciprocal")
    }
)
register({f"_foreach_{name}.Scalar": with_one(f) for name, f in ARITHMETIC.items()})
register({f"_foreach_{name}.ScalarList": with_each(f) for name, f in ARITHMETIC.items()})
register({f"_foreach_{name}.List": with_each(f) for name, f in PAIRS.items()})
register(
    {
        "_foreach_add.List": lambda xs, ys, a: [x + like(a, x) * y for x, y in zip(xs, ys, strict=True)],
        "_foreach_sub.List": lambda xs, ys, a: [x - like(a, x) * y for x, y in zip(xs, ys, strict=True)],
        "_foreach_add.Tensor": lambda xs, y, alpha: [x + like(alpha, x) * y for x in xs],
        "_foreach_mul.Tensor": with_one(np.multiply),
        "_foreach_div.Tensor": with_one(quotient),
        "_foreach_pow.Scalar": with_one(power),
        "_foreach_norm.Scalar": lambda xs, order: [vector_norm(x, order, None, False) for x in xs],
        "_foreach_lerp.Scalar": lambda xs, ys, w: [lerp(x, y, w) for x, y in zip(xs, ys, strict=True)],
        "_foreach_lerp.List": lambda xs, ys, ws: [lerp(*xyw) for xyw in zip(xs, ys, ws, strict=True)],
        "_foreach_addcmul.Scalar": lambda xs, a, b, c: list(map(addcmul, xs, a, b, [c] * len(xs))),
        "_foreach_addcmul.ScalarList": lambda xs, a, b, c: list(map(addcmul, xs, a, b, c)),
        "_foreach_addcdiv.Scalar": lambda xs, a, b, c: list(map(addcdiv, xs, a, b, [c] * len(xs))),
        "_foreach_addcdiv.ScalarList": lambda xs, a, b, c: list(map(addcdiv, xs, a, b, c)),
    }
)


@writes("aten::_foreach_copy_")
def copy_each(xs: list[Array], sources: list[Array]) -> None:
    for x, source in zip(xs, sources, strict=True):
        x[...] = source


@writes("aten::_foreach_zero_")
def zero_each(xs: list[Array]) -> None:
    for x in xs:
        x[...] = 0


def scaled_gradient(grad: Array, scale: Maybe, maximize: bool) -> Any:
    """Return the gradient in at least float32, divided by a GradScaler's scale; writes the unscaled gradient back."""
    if scale is not None:
        grad[...] = wide(grad) / scale
    return -wide(grad) if maximize else wide(grad)


def fused_adam(decoupled: bool) -> Function:
    """Make a step of Adam; decoupled weight decay is AdamW's (https://arxiv.org/abs/1711.05101)."""

    def step(
        params: list[Array], grads: list[Array], firsts: list[Array], seconds: list[Array], largest: list[Array],
        steps: list[Array], lr: Any, beta1: float, beta2: float, decay: float, eps: float, amsgrad: bool,
        maximize: bool, scale: Maybe, found_inf: Maybe,
    ) -> None:  # fmt: skip
        if found_inf is not None and found_inf:
            return
        lr = float(lr)
        for i, (param, grad, m, v) in enumerate(zip(params, grads, firsts, seconds, strict=True)):
            p, g, t = wide(param), scaled_gradient(grad, scale, maximize), float(steps[i])
            p, g = (p * (1 - lr * decay), g) if decoupled else (p, g + decay * p)
            m[...] = new_m = wide(m) + (1 - beta1) * (g - wide(m))
            v[...] = new_v = beta2 * wide(v) + (1 - beta2) * g * g
            if amsgrad:
                largest[i][...] = new_v = np.maximum(wide(largest[i]), new_v)
            denominator = np.sqrt(new_v) / math.sqrt(1 - beta2**t) + eps
            param[...] = p - lr / (1 - beta1**t) * new_m / denominator

    return step


writes("aten::_fused_adam_")(fused_adam(decoupled=False))
writes("aten::_fused_adamw_")(fused_adam(decoupled=True))


@writes("aten::_fused_sgd_")
def fused_sgd(
    params: list[Array], grads: list[Array], momenta: list[Array], decay: float, momentum: float, lr: float,
    dampening: float, nesterov: bool, maximize: bool, is_first_step: bool, scale: Maybe, found_inf: Maybe,
) -> None:  # fmt: skip
    if found_inf is not None and found_inf:
        return
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        g = scaled_gradient(grad, scale, maximize) + decay * wide(param)
        if momentum:
            momenta[i][...] = b = g if is_first_step else momentum * wide(momenta[i]) + (1 - dampening) * g
            g = g + momentum * b if nesterov else b
        param[...] = wide(param) - lr * g


@writes("aten::_amp_foreach_non_finite_check_and_unscale_")
def unscale(grads: list[Array], found_inf: Array, inverse_scale: Array) -> None:
    for grad in grads:
        if not np.isfinite(wide(grad)).all():
            found_inf[...] = 1
        grad[...] = wide(grad) * inverse_scale


@writes("aten::_amp_update_scale_")
def update_scale(
    scale: Array, tracker: Array, found_inf: Array, growth: float, backoff: float, interval: int
) -> None:
    grows = not found_inf and tracker + 1 == interval
    tracker[...] = 0 if found_inf or grows else tracker + 1
    changed = scale * (backoff if found_inf else growth if grows else 1)
    scale[...] = changed if np.isfinite(changed.astype(scale.dtype)) else scale
