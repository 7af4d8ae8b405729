"""Indexing, sorting, copying."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import (
    Array,
    Function,
    Maybe,
    double,
    exact,
    fitting,
    number,
    operator,
    register,
    store,
    wide,
    writes,
)


def at(dim: int, index: Array) -> tuple[Any, ...]:
    """Return the index tuple that applies ``index`` along ``dim``; of a 0-dim tensor it has one dimension."""
    index = np.atleast_1d(index)
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[dim] = index
    return tuple(grid)


def along(x: Array, dim: int, index: Any) -> tuple[Any, ...]:
    """Return the index tuple that applies a 1-dim ``index``, slice or number along ``dim`` of x."""
    return (*[slice(None)] * (dim % max(x.ndim, 1)), index) if x.ndim else ()


def changed(x: Array, index: Any, values: Any, add: bool = False) -> Array:
    """Return a copy of x with values written or added at an index."""
    result = np.array(exact(x) if add else x)
    if add:
        np.add.at(result, index, values)
    else:
        result[index] = values
    return result


def scattered(x: Array, dim: int, index: Array, values: Any, add: bool = False) -> Array:
    """Return a copy of x with values written or added at ``index`` along ``dim``."""
    return changed(np.atleast_1d(x), at(dim, index), values, add).reshape(x.shape)


def index_add(x: Array, dim: int, index: Array, source: Array, alpha: Any) -> Array:
    """Return a copy of x with ``alpha * source`` added at the 1-dim ``index`` along ``dim``."""
    if x.ndim != source.ndim:
        raise RuntimeError(f"source has {source.ndim} dimensions; expected {x.ndim} as self")
    given, added = np.atleast_1d(x), np.atleast_1d(number(alpha, source) * source)
    return changed(given, along(given, dim, np.atleast_1d(index)), added, add=True).reshape(x.shape)


@writes("aten::masked_fill.Scalar")
def masked_fill(x: Array, mask: Array, value: Any, out: Array) -> None:
    filling = fitting(value, x)
    out[...] = x
    np.copyto(out, filling, where=mask.astype(bool), casting="unsafe")  # out may be expanded


@writes("aten::index_put")
def index_put(x: Array, indices: list[Maybe], values: Array, accumulate: bool, out: Array) -> None:
    if accumulate:
        store(out, changed(wide(x), index_of(indices), wide(values), add=True))
    else:
        values = values.copy()  # may be in the memory of out
        out[...] = x
        out[index_of(indices)] = values


def gathered(x: Array, dim: int, index: Array, sparse: bool) -> Array:
    """Return the elements of x at ``index`` along ``dim``, in the shape of ``index``; ``sparse`` is ignored."""
    return np.asarray(np.atleast_1d(x)[at(dim, index)]).reshape(index.shape)


def part(source: Array, index: Array) -> Array:
    """Return the part of ``source`` from its start that has the shape of ``index``."""
    return np.atleast_1d(source)[tuple(slice(n) for n in np.atleast_1d(index).shape)]


def index_of(indices: list[Maybe]) -> tuple[Any, ...]:
    """Return the index tuple of the indices of each dimension; None takes all of a dimension."""
    return tuple(slice(None) if index is None else index for index in indices)


@operator("aten::embedding_dense_backward")
def embedding_backward(grad: Array, index: Array, rows: int, padding_idx: int, by_frequency: bool) -> Array:
    index, grad = index.reshape(-1), double(grad).reshape(index.size, grad.shape[-1])
    kept = index != padding_idx
    index, grad = index[kept], grad[kept]
    if by_frequency:
        grad = grad / np.bincount(index, minlength=rows)[index][:, None]
    return changed(np.zeros((rows, grad.shape[1])), index, grad, add=True)


def sort(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """Sort stably; NaN is the largest value."""
    if not x.ndim:
        return x, np.zeros((), np.int64)
    if descending:  # sorting the reversed array and reversing the result keeps equal elements in order
        order = np.flip(x.shape[dim] - 1 - np.argsort(np.flip(x, dim), dim, kind="stable"), dim)
    else:
        order = np.argsort(x, dim, kind="stable")
    return np.take_along_axis(x, order, dim), order


COMBINED: dict[
    str, tuple[Any, Function]
] = {  # reduction: how it combines two numbers, its identity of a dtype
    "sum": (np.add, lambda _: 0),
    "mean": (np.add, lambda _: 0),
    "prod": (np.multiply, lambda _: 1),
    "amax": (np.maximum, lambda dtype: ends(dtype)[0]),
    "amin": (np.minimum, lambda dtype: ends(dtype)[1]),
}


def ends(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the least and the greatest number of a dtype, infinities included."""
    if dtype.kind == "f":
        return -np.inf, np.inf
    return (False, True) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


@operator("aten::scatter_reduce.two")
def scatter_reduce(x: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool) -> Array:
    combine, identity = COMBINED[reduce]
    places, result = at(dim, index), np.array(exact(x), ndmin=1)
    if not include_self:
        result[places] = identity(result.dtype)
    combine.at(result, places, part(src, index))
    if reduce == "mean":
        counts = np.maximum(changed(np.full(result.shape, int(include_self)), places, 1, add=True), 1)
        result = result / counts if result.dtype.kind == "f" else result // counts
    return result.reshape(x.shape)


@operator("aten::topk")
def topk(x: Array, k: int, dim: int, largest: bool, is_sorted: bool) -> tuple[Array, Array]:
    values, order = sort(x, dim, largest)
    return (values, order) if not x.ndim else (np.split(values, [k], dim)[0], np.split(order, [k], dim)[0])


@operator("aten::histc")
def histogram(x: Array, bins: int, low: float, high: float) -> Array:
    if low == high:
        low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 1.0)
    low, high = (low - 1, high + 1) if low == high else (low, high)
    return np.histogram(x, bins, (low, high))[0]


@writes("aten::copy_")
def copy(x: Array, source: Array) -> None:
    x[...] = source


@writes("aten::fill_.Scalar", "aten::fill_.Tensor")
def fill(x: Array, value: Any) -> None:
    x[...] = fitting(value, x)


@writes("aten::zero_")
def zero(x: Array) -> None:
    x[...] = 0


@writes("aten::linspace")
def linspace(start: Any, end: Any, steps: int, out: Array) -> None:
    """Count the second half from the end, which it reaches exactly; ends of integers are truncated first."""
    if out.dtype.kind in "iu":
        start, end = int(start), int(end)
    step, i = (float(end) - float(start)) / max(steps - 1, 1), np.arange(steps)
    out[...] = np.where(i < max(steps // 2, 1), start + step * i, end - step * (steps - 1 - i))


@writes("aten::arange.start_step")
def arange(start: Any, end: Any, step: Any, out: Array) -> None:
    if out.dtype.kind in "iu":
        start, step = int(start), int(step)
    out[...] = start + step * np.arange(out.size)


register({"eye.m": np.eye}, inputs=2)
register(
    {
        "embedding": lambda weight, index, padding_idx, by_frequency, sparse: weight[index],
        "index_select": lambda x, dim, index: x[along(x, dim, index)],
        "gather": gathered,
        "scatter.src": lambda x, dim, index, src: scattered(x, dim, index, part(src, index)),
        "scatter.value": lambda x, dim, index, value: scattered(x, dim, index, fitting(value, x)),
        "scatter_add": lambda x, dim, index, src: scattered(x, dim, index, part(src, index), True),
        "index_add": index_add,
        "index.Tensor": lambda x, indices: x[index_of(indices)],
        "sort": sort,
        "sort.stable": lambda x, stable, dim, descending: sort(x, dim, descending),
        "cat": lambda parts, dim: np.concatenate([p for p in parts if p.shape != (0,)] or parts, dim),
        "roll": lambda x, shifts, dims: np.roll(x, shifts, dims or None),
    }
)


register(
    {"tril": np.tril, "triu": np.triu, "flip": lambda x, dims: np.flip(x, dims) if x.ndim else x}, inputs=2
)
