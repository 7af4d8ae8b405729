"""Operators of the rotary position embedding: ``rotary`` and ``rotary_``."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.families._common import denormals
from isthmus.opset.operator import ONLY_NAN, Operator, accumulated, extension
from isthmus.opset.sampling import Array, Case, Maker

_TOLERANCE = accumulated(4, "two products and a sum that may cancel")


def _angles(m: Maker, *shape: int) -> tuple[Array, Array]:
    return m.tensor(*shape, low=-1, high=1), m.tensor(*shape, low=-1, high=1)


def _samples(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(2, 5, 4, 18), m.tensor(2, 5, 2, 18), *_angles(m, 7, 9), None, 1, 18, -1,
                 False, False)  # fmt: skip
    yield m.case("contiguous", m.tensor(2, 5, 3, 18), m.tensor(2, 5, 3, 18), *_angles(m, 5, 18), None, 1, 18, -1,
                 True, True)  # fmt: skip
    yield m.case("contiguous", m.tensor(2, 3, 5, 70), m.tensor(2, 1, 5, 70), *_angles(m, 2, 6, 66), None, 2, 66,
                 -1, False, False)  # fmt: skip
    yield m.case("contiguous", m.tensor(2, 4, 6, 22), None, *_angles(m, 9, 8),
                 m.integers(2, 4, low=0, high=9), 1, 16, 4, True, False)  # fmt: skip
    yield m.case("strided", m.tensor(2, 5, 4, 34, layout="heads"), m.tensor(2, 5, 1, 34), *_angles(m, 1, 5, 34),
                 None, 1, 34, -1, False, True)  # fmt: skip
    yield m.case("strided", m.tensor(2, 4, 5, 34, layout="sliced"), None, *_angles(m, 9, 17),
                 m.integers(1, 5, low=0, high=9), 2, 34, -1, True, False)  # fmt: skip
    yield m.case("large", m.tensor(2, 33, 3, 64), m.tensor(2, 33, 1, 64), *_angles(m, 33, 32), None, 1, 64, -1,
                 False, False)  # fmt: skip
    yield m.case("zero-size", m.tensor(2, 0, 3, 8), m.tensor(2, 0, 1, 8), *_angles(m, 3, 4), None, 1, 8, -1,
                 False, False)  # fmt: skip
    yield from _combined(m)


def _combined(m: Maker) -> Iterator[Case]:
    """Both orders of dimensions, pairs, tables and directions, with a part of the heads and of the features."""
    for seq_dim, dim, heads, interleaved, conjugate, whole in (
        (1, 10, 3, False, True, False), (2, 6, 1, True, True, False), (2, 10, 0, True, False, True),
        (1, 6, 4, True, False, False), (1, 6, 2, False, True, True), (2, 14, 5, False, False, False),
    ):  # fmt: skip
        sizes, others = ((2, 4, 5, 14), (2, 4, 3, 14)) if seq_dim == 1 else ((2, 5, 4, 14), (2, 3, 4, 14))
        tables, positions = _angles(m, 9, dim if whole else dim // 2), None
        if heads % 2:  # repeated, unordered, to the last row
            positions = m.values([[8, 0, 8, 3], [5, 7, 1, 1]], "int64")
        yield m.case("contiguous", m.tensor(*sizes), m.tensor(*others), *tables, positions, seq_dim, dim, heads,
                     interleaved, conjugate)  # fmt: skip
    # Pairs beyond a half, of which 16-bit products overflow; sizes of 1 and no multiple of a vector.
    yield m.case("contiguous", m.tensor(1, 3, 1, 6, low=-3e4, high=3.2e4), m.tensor(1, 3, 1, 6), *_angles(m, 3, 3),
                 None, 1, 6, -1, False, False)  # fmt: skip
    # Factors of 1 and 0, which leave denormal numbers; denormal factors of a power of two; less than a vector.
    for query, cos in (
        (denormals(m, 1, 3, 2, 8), m.values(np.ones((3, 4)))),
        (m.values(np.full((1, 3, 2, 8), 2)), denormals(m, 3, 4)),
    ):
        yield m.case("special", query, query, cos, m.values(np.zeros((3, 4))), None, 1, 8, -1, False, False)
    yield m.case("contiguous", m.tensor(1, 1, 1, 2), m.tensor(1, 1, 1, 2), *_angles(m, 1, 1), None, 1, 2, -1, False,
                 False)  # fmt: skip
    yield m.case("contiguous", m.tensor(1, 1, 2, 4), m.tensor(1, 1, 1, 4), *_angles(m, 1, 2), None, 1, 4, -1, False,
                 False)  # fmt: skip
    positions = m.values([[0, 2]], "int64")
    yield m.case("contiguous", m.tensor(1, 2, 1, 2), m.tensor(1, 2, 1, 2), *_angles(m, 3, 1), positions, 1, 2, -1,
                 False, False)  # fmt: skip
    if m.dtype != "float16":
        query, key = m.tensor(1, 3, 1, 10, low=-4e5, high=3e5), m.tensor(1, 3, 1, 10, low=-4e5, high=3e5)
        yield m.case("special", query, key, *_angles(m, 3, 5), None, 1, 10, -1, True, True)
    if m.dtype == "float32":
        tables = m.tensor(65_700, 2, low=-1, high=1), m.tensor(65_700, 2, low=-0.9, high=1)
        positions = m.values([[32_767, 32_768, 65_699, 40_000, 65_536]], "int64")
        yield m.case(
            "large", m.tensor(2, 5, 3, 6), m.tensor(2, 5, 1, 6), *tables, positions, 1, 4, -1, False, True
        )
        tables = _angles(m, 3, 516)  # features beyond a tile, tokens beyond one, rows beyond 2^16
        yield m.case("large", m.tensor(1, 3, 2, 1032), m.tensor(1, 3, 1, 1032), *tables, None, 1, 1032, -1, False,
                     False)  # fmt: skip
        tables = m.tensor(4099, 1, low=-1, high=1), m.tensor(4099, 1, low=-0.9, high=1)
        yield m.case("large", m.tensor(17, 1, 4099, 2), m.tensor(17, 1, 4099, 2), *tables, None, 2, 2, -1, False,
                     False)  # fmt: skip
        tables = m.tensor(3, 4133, low=-1, high=1), m.tensor(3, 4133, low=-0.9, high=1)
        yield m.case("large", m.tensor(1, 3, 2, 8266), m.tensor(1, 3, 1, 8266), *tables, None, 1, 8266, -1, True,
                     False)  # fmt: skip
        for width in (64, 128, 192):  # heads of models, more of them than a tile has
            yield m.case("large", m.tensor(1, 2, 67, width), m.tensor(1, 2, 5, width), *_angles(m, 2, width // 2),
                         None, 1, width, -1, False, False)  # fmt: skip
        tables = _angles(m, 130, 96)
        yield m.case("large", m.tensor(1, 3, 130, 192), m.tensor(1, 1, 130, 192), *tables, None, 2, 192, -1, True,
                     False)  # fmt: skip


def _samples_with_key(m: Maker) -> Iterator[Case]:
    """Samples with a key; golden data cannot represent an absent written argument."""
    for case in _samples(m):
        if case.arguments["key"] is not None:
            yield case


def _rotate(tensor: Any, cos: Any, sin: Any, positions: Any, seq_dim: int, dim: int, heads: int, interleaved: bool,
          conjugate: bool, magnitude: bool = False) -> Any:  # fmt: skip
    """Rotate the features of one tensor, as a matrix product of pairs."""
    import torch

    cos, sin = ((table if positions is None else table[positions]) for table in (cos, sin))
    cos, sin = ((table[None] if table.dim() == 2 else table) for table in (cos, sin))
    if cos.shape[1] < tensor.shape[seq_dim] or cos.shape[-1] not in (dim, dim // 2):
        raise ValueError("the tables do not fit the tokens")
    cos, sin = (table[:, : tensor.shape[seq_dim]].unsqueeze(3 - seq_dim) for table in (cos, sin))
    first, second = (slice(0, dim, 2), slice(1, dim, 2)) if interleaved else (
        slice(0, dim // 2), slice(dim // 2, dim))  # fmt: skip
    whole = cos.shape[-1] == dim
    c1, c2 = (cos[..., first], cos[..., second]) if whole else (cos, cos)
    s1, s2 = (sin[..., first], sin[..., second]) if whole else (sin, sin)
    if conjugate:
        s1, s2 = -s2, -s1
    a, b = tensor[..., first], tensor[..., second]
    out = tensor.clone()
    if magnitude:
        out = out.abs()
        out[..., first] = (a * c1).abs() + (b * s1).abs()
        out[..., second] = (b * c2).abs() + (a * s2).abs()
    else:
        out[..., first], out[..., second] = a * c1 - b * s1, b * c2 + a * s2
    if heads < 0:
        return out
    turned = torch.arange(tensor.shape[3 - seq_dim]) < heads
    turned = turned.view(-1, 1) if seq_dim == 1 else turned.view(-1, 1, 1)
    return torch.where(turned, out, tensor.abs() if magnitude else tensor)


def _rotate_both(query: Any, key: Any, cos: Any, sin: Any, positions: Any, seq_dim: int, dim: int, heads: int,
          interleaved: bool, conjugate: bool, magnitude: bool = False) -> Any:  # fmt: skip
    rest = (cos, sin, positions, seq_dim, dim)
    out = _rotate(query, *rest, heads, interleaved, conjugate, magnitude)
    return out, None if key is None else _rotate(key, *rest, -1, interleaved, conjugate, magnitude)


def _in_place(query: Any, key: Any, **others: Any) -> None:
    out, other = _rotate_both(query, key, **others)
    query.copy_(out)
    if key is not None:
        key.copy_(other)


def _magnitude(**arguments: Any) -> Any:
    return _rotate_both(**arguments, magnitude=True)


_SETTINGS = (
    "Tensor cos, Tensor sin, Tensor? positions, int seq_dim, int dim, int heads, bool interleaved, "
    "bool conjugate"
)

OPERATORS: list[Operator] = [
    extension(f"rotary(Tensor query, Tensor? key, {_SETTINGS}) -> (Tensor out, Tensor? out_key)",
              "(query.shape, None if key is None else key.shape)",
              "(query.dtype, None if key is None else key.dtype)", _samples, _TOLERANCE,
              differentiable="query key", reference=_rotate_both, magnitude=_magnitude, special=ONLY_NAN,
              denormal=False, resizable=True),
    extension(f"rotary_(Tensor(a!) query, Tensor(b!)? key, {_SETTINGS}) -> ()", "None", "None", _samples_with_key,
              _TOLERANCE, reference=_in_place, magnitude=_magnitude, special=ONLY_NAN,
              denormal=False, resizable=True),
]  # fmt: skip
