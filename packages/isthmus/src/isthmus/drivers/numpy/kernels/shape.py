"""Operators that copy tensors with parts added, repeated or replaced."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from collections.abc import Sequence
from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.indexing import along, changed
from isthmus.drivers.numpy.kernels.kernel import Array, fitting, operator, register


@operator("aten::constant_pad_nd")
def constant_pad(x: Array, pad: list[int], value: Any) -> Array:
    """Pad the last dimensions; negative pads crop. ``pad`` is (before, after) from the last dimension."""
    around = [(0, 0)] * (x.ndim - len(pad) // 2) + [*zip(pad[::2], pad[1::2], strict=True)][::-1]
    inside = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, around, strict=True))
    extra = [(max(a, 0), max(b, 0)) for a, b in around]
    return np.pad(x[inside], extra, constant_values=fitting(value, x)) if extra else x


@operator("aten::masked_scatter")
def masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    x, mask = (np.array(each) for each in np.broadcast_arrays(x, mask.astype(bool)))
    x[mask] = source.reshape(-1)[: np.count_nonzero(mask)]
    return x


def widened(sizes: Sequence[int], dim: int, index: Any, grad: Array) -> Array:
    """Return zeros with the gradient at an index along a dimension."""
    zeros = np.zeros(sizes, grad.dtype)
    return changed(zeros, along(zeros, dim, index), grad)


register({"stack": np.stack, "repeat": np.tile}, inputs=2)
register(
    {
        "slice_scatter": lambda x, src, dim, start, end, step: changed(
            x, along(x, dim, slice(start, end, step)), src
        ),
        "select_scatter": lambda x, src, dim, index: changed(x, along(x, dim, index), src),
        "slice_backward": lambda grad, sizes, dim, start, end, step: widened(
            sizes, dim, slice(start, end, step), grad
        ),
        "select_backward": lambda grad, sizes, dim, index: widened(sizes, dim, index, grad),
    }
)
