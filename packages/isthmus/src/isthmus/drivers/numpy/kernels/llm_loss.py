"""Cross entropy of large language models: of logits, and fused with a linear layer."""

# ruff: noqa: D102, D103 (a kernel is documented where its operator is: in the opset)

from typing import Any, NamedTuple

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator, wide, writes


class Terms(NamedTuple):
    """The settings of a loss, as in the schema."""

    ignore_index: int
    label_smoothing: float
    logit_scale: float
    softcap: float
    lse_square_scale: float

    def capped(self, logits: Array) -> Any:
        z = double(logits) * self.logit_scale
        return self.softcap * np.tanh(z / self.softcap) if self.softcap else z

    def losses(self, logits: Array, target: Array) -> tuple[Any, Any]:
        """Return the loss and the log-sum-exp of each row."""
        z, ignored = self.capped(logits), target == self.ignore_index
        lse = log_sum_exp(z)
        right = np.take_along_axis(z, np.where(ignored, 0, target)[..., None], -1)[..., 0]
        loss = lse - (1 - self.label_smoothing) * right
        loss = loss - self.label_smoothing * z.mean(-1) + self.lse_square_scale * lse**2
        return np.where(ignored, 0, loss), lse

    def gradient(self, grad: Array, grad_lse: Maybe, logits: Array, target: Array, lse: Array) -> Any:
        """Return the gradient of the logits for those of the loss and of the log-sum-exp."""
        z, lse, ignored = (
            self.capped(logits),
            double(lse)[..., None],
            (target == self.ignore_index)[..., None],
        )
        grad = np.where(ignored, 0, double(grad)[..., None])
        weight = grad * (1 + 2 * self.lse_square_scale * lse)
        weight = weight if grad_lse is None else weight + grad_lse[..., None]
        right = np.arange(z.shape[-1]) == np.where(ignored, 0, target[..., None])
        out = weight * np.exp(z - lse) - grad * (1 - self.label_smoothing) * right
        out = out - grad * self.label_smoothing / z.shape[-1]
        slope = 1 - (z / self.softcap) ** 2 if self.softcap else 1
        out = out * slope * self.logit_scale
        return np.where(ignored, 0, out) if grad_lse is None else out


def log_sum_exp(z: Array) -> Any:
    top = z.max(-1, keepdims=True)
    top = np.where(np.isinf(top), 0, top)
    return np.log(np.exp(z - top).sum(-1)) + top[..., 0]


@operator("isthmus::cross_entropy")
def cross_entropy(
    logits: Array, target: Array, ignore_index: int, label_smoothing: float, logit_scale: float, softcap: float,
    lse_square_scale: float,
) -> tuple[Any, Any]:  # fmt: skip
    terms = Terms(ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale)
    return terms.losses(logits, target)


@operator("isthmus::cross_entropy_backward")
def cross_entropy_backward(
    grad: Array, grad_lse: Maybe, logits: Array, target: Array, lse: Array, ignore_index: int, label_smoothing: float,
    logit_scale: float, softcap: float, lse_square_scale: float,
) -> Any:  # fmt: skip
    terms = Terms(ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale)
    return terms.gradient(grad, grad_lse, logits, target, lse)


@writes("isthmus::cross_entropy_backward_")
def cross_entropy_backward_(
    logits: Array, grad: Array, grad_lse: Maybe, target: Array, lse: Array, ignore_index: int, label_smoothing: float,
    logit_scale: float, softcap: float, lse_square_scale: float,
) -> None:  # fmt: skip
    terms = Terms(ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale)
    logits[...] = terms.gradient(wide(grad), wide(grad_lse), wide(logits), target, wide(lse))


@operator("isthmus::linear_cross_entropy")
def linear_cross_entropy(
    hidden: Array, weight: Array, bias: Maybe, target: Array, grad: Maybe, ignore_index: int, label_smoothing: float,
    logit_scale: float, softcap: float, lse_square_scale: float, chunk_size: int, wanted: list[bool],
) -> tuple[Any, ...]:  # fmt: skip
    terms = Terms(ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale)
    hidden, weight = double(hidden), double(weight)
    logits = hidden @ weight.T + (0 if bias is None else bias)
    loss, lse = terms.losses(logits, target)
    slope = terms.gradient(np.ones(loss.shape) if grad is None else grad, None, logits, target, lse)
    return loss, lse, slope @ weight, slope.T @ hidden, slope.sum(0)
