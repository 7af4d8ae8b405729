"""Rotary position embedding."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator, wide, writes


def table(angles: Array, positions: Maybe, length: int, seq_dim: int) -> Any:
    """Return cosines or sines, broadcastable to a tensor whose sequence is at ``seq_dim``."""
    angles = double(angles) if positions is None else double(angles)[positions]
    angles = angles if angles.ndim == 3 else angles[None]
    return np.expand_dims(angles[:, :length], 3 - seq_dim)


def turned(
    x: Array, cos: Array, sin: Array, positions: Maybe, seq_dim: int, dim: int, heads: int, interleaved: bool,
    conjugate: bool,
) -> Array:  # fmt: skip
    """Rotate the first ``dim`` elements of the first ``heads`` heads, or of all if negative."""
    cos, sin = (table(each, positions, x.shape[seq_dim], seq_dim) for each in (cos, sin))
    first, second = slice(0, dim // 2), slice(dim // 2, dim)
    if interleaved:
        first, second = slice(0, dim, 2), slice(1, dim, 2)
    whole = cos.shape[-1] == dim
    c1, c2, s1, s2 = ((each[..., part] if whole else each) for each in (cos, sin) for part in (first, second))
    if conjugate:
        s1, s2 = -s2, -s1
    out = double(x).copy()
    a, b = double(x)[..., first], double(x)[..., second]
    out[..., first], out[..., second] = a * c1 - b * s1, b * c2 + a * s2
    if heads < 0:
        return out
    chosen = np.arange(x.shape[3 - seq_dim]) < heads
    return np.where(np.expand_dims(chosen, (1,) if seq_dim == 1 else (1, 2)), out, x)


@operator("isthmus::rotary")
def rotary(
    query: Array, key: Maybe, cos: Array, sin: Array, positions: Maybe, seq_dim: int, dim: int, heads: int,
    interleaved: bool, conjugate: bool,
) -> tuple[Any, Any]:  # fmt: skip
    rest = (interleaved, conjugate)
    out = turned(query, cos, sin, positions, seq_dim, dim, heads, *rest)
    return out, None if key is None else turned(key, cos, sin, positions, seq_dim, dim, -1, *rest)


@writes("isthmus::rotary_")
def rotary_(
    query: Array, key: Maybe, cos: Array, sin: Array, positions: Maybe, seq_dim: int, dim: int, heads: int,
    interleaved: bool, conjugate: bool,
) -> None:  # fmt: skip
    inputs = (wide(each) for each in (query, key, cos, sin))
    out, out_key = rotary(*inputs, positions, seq_dim, dim, heads, interleaved, conjugate)
    query[...] = out
    if key is not None:
        key[...] = out_key
