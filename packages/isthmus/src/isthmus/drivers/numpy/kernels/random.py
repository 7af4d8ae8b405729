"""Random numbers; each call has a new seed, derived from ``manual_seed()``."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from typing import Any

import ml_dtypes
import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, operator, writes
from isthmus.opset.library import Context


def draws(context: Context) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(context.seed))


@writes("aten::uniform_")
def uniform(x: Array, low: float, high: float, context: Context) -> None:
    drawn = np.asarray(low + (high - low) * draws(context).random(x.shape)).astype(x.dtype)
    # Rounding reaches the upper bound, which is excluded.
    x[...] = np.where(drawn >= high, np.asarray(low, x.dtype), drawn)


@writes("aten::normal_")
def normal(x: Array, center: float, std: float, context: Context) -> None:
    x[...] = center + std * draws(context).standard_normal(x.shape)


@writes("aten::exponential_")
def exponential(x: Array, rate: float, context: Context) -> None:
    if rate <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate}")
    drawn = np.asarray(draws(context).standard_exponential(x.shape) / rate).astype(x.dtype)
    x[...] = np.where(drawn == 0, ml_dtypes.finfo(x.dtype).smallest_subnormal, drawn)


@writes("aten::bernoulli_.float")
def bernoulli_(x: Array, p: Any, context: Context) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_: p is {p}, expected from 0 to 1")
    x[...] = draws(context).random(x.shape) < p


@writes("aten::random_.from")
def random_from(x: Array, low: int, high: int | None, context: Context) -> None:
    last = np.iinfo(x.dtype if x.dtype.kind in "iu" else np.int64).max if high is None else high - 1
    x[...] = draws(context).integers(low, last, x.shape, endpoint=True)


@writes("aten::random_.to")
def random_to(x: Array, high: int, context: Context) -> None:
    x[...] = draws(context).integers(0, high, x.shape)


@operator("aten::bernoulli")
def bernoulli(p: Array, context: Context) -> Array:
    return draws(context).random(p.shape) < p


@operator("aten::native_dropout")
def dropout(x: Array, p: float, train: bool | None, context: Context) -> tuple[Array, Any]:
    kept = draws(context).random(x.shape) >= (p if train is not False else 0)
    return np.where(kept, x / (1 - p) if p < 1 and train is not False else x, 0), kept


@operator("aten::randperm")
def randperm(n: int, context: Context) -> Array:
    return draws(context).permutation(n)
