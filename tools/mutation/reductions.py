"""NumPy's reductions and products with the mistakes of real ones, for mutants of the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_STEP = 8  # products added exactly before their sum is rounded


def mutants(name: str) -> dict[str, Callable[..., Any]]:
    """Return the mistakes that a NumPy function can have, by name of the mistake and its detail."""
    if name == "matmul":
        return {f"accumulated in {dtype}": _product(dtype) for dtype in ("float16", "float32")} | {
            f"stops at {limit}": _shorter_product(limit) for limit in (2048, 4096)
        }
    name = {"max": "amax", "min": "amin"}.get(name, name)
    if name not in ("sum", "mean", "prod", "var", "amax", "amin", "argmax", "argmin", "any", "all", "cumsum"):
        return {}
    function = getattr(np, name)
    found = {f"stops at {limit}": _shorter(function, limit) for limit in (2048, 4096, 65536)}
    found["last term lost"] = _shorter(function, -1)
    if name in ("sum", "mean", "cumsum"):
        found |= {f"accumulated in {dtype}": _one_by_one(name, dtype) for dtype in ("float16", "float32")}
    if name == "var":
        found["variance in one pass"] = _variance
    if name in ("amax", "amin", "argmax", "argmin"):
        found["NaN not propagated"] = _without_nan(function, -np.inf if name.endswith("max") else np.inf)
    if name == "amax":
        found["maximum not subtracted"] = _zeros
    return found


def _zeros(x: Any, axis: Any = None, keepdims: bool = False, **options: Any) -> Any:
    return np.sum(np.zeros_like(x), axis=axis, keepdims=keepdims)


def _shorter(function: Callable[..., Any], limit: int) -> Callable[..., Any]:
    """Reduce the first ``limit`` elements only; a cumulative sum begins again after them."""

    def wrong(x: Any, axis: Any = None, **options: Any) -> Any:
        x = np.asarray(x)
        last = axis[-1] if isinstance(axis, tuple) and axis else axis
        if x.ndim == 0 or axis == () or (axis is None and x.ndim > 1 and options.get("keepdims")):
            return function(x, axis=axis, **options)
        if axis is None:
            x, last, axis = x.reshape(-1), 0, None if function is np.cumsum else 0
        rest = x.shape[last or 0]
        if abs(limit) >= rest:
            return function(x, axis=axis, **options)
        first, others = np.split(x, [limit], axis=last or 0)
        if function is np.cumsum:
            return np.concatenate([np.cumsum(first, last), np.cumsum(others, last)], axis=last)
        return function(first, axis=axis, **options)

    return wrong


def _one_by_one(name: str, dtype: str) -> Callable[..., Any]:
    """Add one element after the other in a dtype."""

    def wrong(x: Any, axis: Any = None, keepdims: bool = False, **options: Any) -> Any:
        x = np.asarray(x)
        axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        if x.dtype.kind != "f" or x.size == 0 or not axes:
            return getattr(np, name)(x, axis=axis, **({} if name == "cumsum" else {"keepdims": keepdims}))
        if name == "cumsum":
            return np.cumsum(x, axis, dtype=dtype).astype(x.dtype)
        moved = np.moveaxis(x, axes, range(-len(axes), 0))
        kept = moved.shape[: x.ndim - len(axes)]
        total = np.cumsum(moved.reshape(*kept, -1), -1, dtype=dtype)[..., -1].astype(x.dtype)
        total = total / (x.size // max(total.size, 1)) if name == "mean" else total
        return np.expand_dims(total, tuple(a % x.ndim for a in axes)) if keepdims else total

    return wrong


def _variance(x: Any, axis: Any = None, keepdims: bool = False, ddof: float = 0) -> Any:
    """Compute E[x^2] - E[x]^2 in float32."""
    narrow = np.asarray(x).astype(np.float32)
    mean = narrow.mean(axis, keepdims=keepdims)
    spread = np.maximum((narrow * narrow).mean(axis, keepdims=keepdims) - mean * mean, 0)
    count = narrow.size / max(np.size(spread), 1)
    return np.asarray(spread, np.float64) * count / (count - ddof) if count != ddof else spread / 0


def _without_nan(function: Callable[..., Any], lowest: float) -> Callable[..., Any]:
    def wrong(x: Any, *arguments: Any, **options: Any) -> Any:
        x = np.asarray(x)
        found = np.where(np.isnan(x), lowest, x) if x.dtype.kind == "f" else x
        return function(found, *arguments, **options)

    return wrong


def _product(dtype: str) -> Callable[..., Any]:
    """Round the sum of products to a dtype after every few of them."""

    def wrong(a: Any, b: Any) -> Any:
        if np.asarray(a).dtype.kind != "f" or a.shape[-1] == 0:
            return np.matmul(a, b)
        axis = -2 if b.ndim > 1 else 0
        total: Any = 0
        for start in range(0, a.shape[-1], _STEP):
            part = np.take(b, range(start, min(start + _STEP, a.shape[-1])), axis)
            total = (total + np.matmul(a[..., start : start + _STEP], part)).astype(dtype)
        return np.asarray(total).astype(a.dtype)

    return wrong


def _shorter_product(limit: int) -> Callable[..., Any]:
    def wrong(a: Any, b: Any) -> Any:
        return np.matmul(a[..., :limit], b[..., :limit, :] if b.ndim > 1 else b[:limit])

    return wrong
