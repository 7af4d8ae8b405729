"""Grouped matrix products, without gradients."""

import torch

from isthmus.ops import grouped_matmul


@torch.no_grad()
def gmm(
    a: torch.Tensor,
    b: torch.Tensor,
    batch_sizes: torch.Tensor,
    trans_a: bool = False,
    trans_b: bool = False,
    c: torch.Tensor | None = None,
) -> torch.Tensor:
    """The product of :func:`grouped_gemm.ops.gmm`; with ``trans_a`` that of the groups' rows of both.

    Args:
        a: [rows, in].
        b: [groups, in, out]; with ``trans_b`` [groups, out, in]; with ``trans_a`` [rows, out].
        batch_sizes: [groups], rows of each group, on any device.
        trans_a: multiply ``a`` transposed by ``b`` in each group.
        trans_b: the matrices ``b`` are transposed.
        c: receives the result, or None.

    Returns:
        [rows, out], or [groups, in, out] with ``trans_a``.

    Raises:
        ValueError: ``trans_a`` and ``trans_b``, or sizes that do not match.
    """
    if trans_a and trans_b:
        raise ValueError("gmm: trans_a and trans_b exclude each other")
    if trans_a:
        sizes = batch_sizes.tolist()
        if sum(sizes) != len(a) or len(a) != len(b):
            raise ValueError(f"gmm: groups of {sizes} rows do not match {len(a)} rows of a and {len(b)} of b")
        out = torch.stack([x.t() @ y for x, y in zip(a.split(sizes), b.split(sizes), strict=True)])
    else:
        out = grouped_matmul(a, b, batch_sizes, trans_b=trans_b)
    return out if c is None else c.copy_(out)
