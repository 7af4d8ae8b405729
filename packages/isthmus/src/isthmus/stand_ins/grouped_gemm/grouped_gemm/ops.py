"""Grouped matrix product, with gradients."""

import torch

from isthmus.ops import grouped_matmul


def gmm(a: torch.Tensor, b: torch.Tensor, batch_sizes: torch.Tensor, trans_b: bool = False) -> torch.Tensor:
    """:func:`isthmus.ops.grouped_matmul`: rows of ``a`` [rows, in] by ``b`` [groups, in, out].

    Args:
        a: [rows, in], groups in order.
        b: [groups, in, out]; [groups, out, in] with ``trans_b``.
        batch_sizes: [groups], rows of each group, on any device.
        trans_b: the matrices are transposed.

    Returns:
        [rows, out].
    """
    return grouped_matmul(a, b, batch_sizes, trans_b=trans_b)
