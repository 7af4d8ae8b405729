"""Calls of layer, group and batch normalization, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import whole_numbers
from isthmus.opset.sampling import Array, Case, Maker


def _stat(m: Maker, *shape: int, low: float, high: float) -> Array:
    return m.tensor(*shape, low=low, high=high, dtype=m.compute_dtype)


def layers(m: Maker) -> Iterator[Case]:
    """Samples of layer normalization."""
    for kind, shape, axes, layout, model in (
        ("contiguous", (2, 17, 35), 1, "contiguous", "bert"), ("contiguous", (3, 5, 7), 2, "contiguous", ""),
        ("strided", (5, 19), 1, "transposed", "bert"), ("strided", (5, 19), 1, "sliced", "bert"),
        ("large", (3, 1031), 1, "contiguous", "bert"), ("zero-size", (0, 7), 1, "contiguous", ""),
    ):  # fmt: skip
        size = list(shape[-axes:])
        tensor = m.tensor(*shape, layout=layout, low=-1.7)
        yield m.case(kind, tensor, size, m.tensor(*size), m.tensor(*size), 1e-5, model=model)
    yield m.case("contiguous", m.tensor(3, 13), [13], None, None, 1e-5)
    if m.dtype != "float64":  # the reference is not more precise
        # A mean far from 0 exposes E[x^2] - E[x]^2.
        yield m.case(
            "contiguous", m.tensor(3, 67, low=999, high=1001), [67], m.tensor(67), m.tensor(67), 1e-5
        )
    # Small values expose a misplaced epsilon.
    yield m.case("contiguous", m.tensor(3, 13, low=-2e-3, high=3e-3), [13], m.tensor(13), m.tensor(13), 1e-3)
    yield m.case("special", m.values([[0.0] * 13, [7.0] * 13]), [13], None, m.tensor(13), 0.7)
    yield m.case("contiguous", m.tensor(2, 3, 4, 5), [3, 4, 5], m.tensor(3, 4, 5), m.tensor(3, 4, 5), 0.3)
    yield m.case("special", m.tensor(2, 13, low=-2e4, high=3e4), [13], m.tensor(13), m.tensor(13), 1e-6)


def layer_gradients(m: Maker) -> Iterator[Case]:
    """Samples of its backward."""
    for kind, shape, axes, layout, mask, model in (
        ("contiguous", (2, 17, 35), 1, "contiguous", [True, True, True], "bert"),
        ("contiguous", (3, 5, 7), 2, "contiguous", [True, True, True], ""),
        ("contiguous", (6, 13), 1, "contiguous", [True, False, False], "bert"),
        ("strided", (5, 19), 1, "transposed", [True, True, True], "bert"),
        ("large", (3, 1031), 1, "contiguous", [True, True, True], "bert"),
        ("contiguous", (2, 3, 4, 5), 3, "contiguous", [False, True, False], ""),
        ("contiguous", (4, 2, 13), 1, "contiguous", [True, False, True], ""),
        ("zero-size", (0, 7), 1, "contiguous", [True, True, True], ""),
    ):
        size = list(shape[-axes:])
        tensor, grad = m.tensor(*shape, layout=layout), m.tensor(*shape)
        wide = tensor.view.astype(np.float64)
        dims = tuple(range(-axes, 0))
        mean = wide.mean(dims, keepdims=True)
        scale = 1 / np.sqrt(((wide - mean) ** 2).mean(dims, keepdims=True) + 1e-5)
        stats = [m.values(each, m.compute_dtype) for each in (mean, scale)]
        yield m.case(kind, grad, tensor, size, *stats, m.tensor(*size), m.tensor(*size), mask, model=model)


def groups(m: Maker) -> Iterator[Case]:
    """Samples of group normalization."""
    for kind, shape, count, layout in (
        ("contiguous", (2, 6, 5, 7), 3, "contiguous"), ("contiguous", (2, 4, 9), 1, "contiguous"),
        ("strided", (2, 6, 5, 7), 2, "channels_last"),
    ):  # fmt: skip
        n, c, rest = shape[0], shape[1], math.prod(shape[2:])
        yield m.case(kind, m.tensor(*shape, layout=layout), m.tensor(c), m.tensor(c), n, c, rest, count, 1e-5)
    yield m.case("contiguous", m.tensor(2, 4, 9), None, None, 2, 4, 9, 2, 1e-3)
    if m.dtype != "float64":
        far = m.tensor(2, 6, 35, low=249, high=251)
        yield m.case("contiguous", far, m.tensor(6), m.tensor(6), 2, 6, 35, 3, 1e-5)
    # 41 * (1 / 41) < 1 in float32.
    yield m.case("contiguous", m.tensor(2, 6, 41), m.tensor(6), m.tensor(6), 2, 6, 41, 3, 1e-5)
    if m.dtype == "float32":
        yield m.case("large", m.tensor(2, 6, 4133), m.tensor(6), m.tensor(6), 2, 6, 4133, 3, 1e-5)
        yield m.case("large", m.tensor(8201, 8, 3), m.tensor(8), m.tensor(8), 8201, 8, 3, 8, 1e-5)
        wide = m.tensor(65_602)
        yield m.case("large", m.tensor(1, 65_602, 2), wide, m.tensor(65_602), 1, 65_602, 2, 32_801, 1e-5)
    yield m.case("special", m.tensor(3, 6, 5, low=-2e-3, high=3e-3), None, m.tensor(6), 3, 6, 5, 6, 1e-3)
    yield m.case("special", m.tensor(2, 6, 1), m.tensor(6), None, 2, 6, 1, 2, 0.7)
    yield m.case("special", m.values([[[4.0] * 3] * 4]), m.tensor(4), m.tensor(4), 1, 4, 3, 2, 0.01)


def group_gradients(m: Maker) -> Iterator[Case]:
    """Samples of its backward."""
    for kind, shape, count, layout in (
        ("contiguous", (2, 6, 5, 7), 3, "contiguous"), ("contiguous", (3, 4, 9), 1, "contiguous"),
        ("strided", (2, 6, 5, 7), 2, "channels_last"), ("contiguous", (5, 6, 1), 2, "contiguous"),
    ):  # fmt: skip
        n, c, rest = shape[0], shape[1], math.prod(shape[2:])
        tensor, grad = m.tensor(*shape, layout=layout), m.tensor(*shape, layout=layout)
        wide = tensor.view.astype(np.float64).reshape(n, count, -1)
        mean = wide.mean(2)
        stats = [m.values(each) for each in (mean, 1 / np.sqrt(wide.var(2) + 1e-5))]
        yield m.case(kind, grad, tensor, *stats, m.tensor(c), n, c, rest, count, [True, True, True])
    if m.dtype == "float32":  # more than 2^16 elements of a channel, and rows
        stats = [m.tensor(1, 2), m.tensor(1, 2, low=0.3)]
        tall = (1, 2, 32_803, 1)
        yield m.case("large", whole_numbers(m, *tall), whole_numbers(m, *tall), *stats, m.tensor(2), 1, 2, 32_803, 2,
                     [True, True, True])  # fmt: skip
        stats = [m.tensor(3, 1), m.tensor(3, 1, low=0.3)]
        yield m.case("large", whole_numbers(m, 3, 2, 32_801), whole_numbers(m, 3, 2, 32_801), *stats, m.tensor(2),
                     3, 2, 32_801, 1, [True, True, True])  # fmt: skip
    for count, weighted, mask in ((2, False, [True, False, False]), (6, True, [False, True, False])):
        stats = [m.tensor(3, count), m.tensor(3, count, low=0.3)]
        yield m.case("special", m.tensor(3, 6, 5), m.tensor(3, 6, 5), *stats, m.tensor(6) if weighted else None,
                     3, 6, 5, count, mask)  # fmt: skip


def _images(m: Maker) -> Iterator[tuple[str, Array, int, str]]:
    yield "contiguous", m.tensor(3, 5, 7, 6), 5, "resnet"
    yield "strided", m.tensor(2, 7, 5, 3, layout="channels_last"), 7, "resnet"
    yield "contiguous", m.tensor(19, 6), 6, ""
    yield "contiguous", m.tensor(2, 3, 2, 3, 4), 3, ""
    yield "contiguous", m.tensor(2, 3, 2, 4, 3), 3, ""
    if m.dtype != "float64":
        yield "contiguous", m.tensor(5, 3, 17, low=999, high=1001), 3, ""
    if m.dtype in ("float32", "bfloat16"):
        yield "large", m.tensor(2, 3, 17, 37), 3, "resnet"
    if m.dtype == "float32":
        yield "large", m.tensor(4133, 5), 5, ""
        yield "large", m.tensor(3, 65_601), 65_601, ""


def batches(running: str = "given") -> Any:
    """Training and evaluation over images, with and without ``running`` statistics."""

    def samples(m: Maker) -> Iterator[Case]:
        for kind, tensor, c, model in _images(m):
            # Mixed precision has float32 parameters and statistics; pure 16-bit does not.
            stored = "float32" if m.dtype in dt.HALVES and model else m.dtype
            scale: list[Array | None] = [m.tensor(c, dtype=stored), m.tensor(c, dtype=stored)]
            stats = [m.tensor(c, low=low, high=high, dtype=stored) for low, high in ((-1, 1), (0.3, 2))]
            modes: dict[str, list[tuple[Any, ...]]] = {
                "given": [(*stats, True), (*stats, False)], "evaluation": [tuple(stats)], "none": [(True,)],
            }  # fmt: skip
            for mode in modes[running]:
                yield m.case(kind, tensor, *scale, *mode, momentum=0.1, eps=1e-5, model=model)
        # Small values expose a misplaced epsilon; the running statistics move by each momentum.
        small = m.tensor(4, 3, 5, low=-0.02, high=0.05)
        for momentum, eps, weighted in ((0.35, 1e-3, True), (0.0, 0.7, False), (1.0, 1e-4, True)):
            stats = [m.tensor(3, low=-1, high=1), m.tensor(3, low=1e-3, high=2e-3)]
            scale = [m.tensor(3), m.tensor(3)] if weighted else [None, None]
            modes = {
                "given": [(*stats, True), (*stats, False)],
                "evaluation": [tuple(stats)],
                "none": [(True,)],
            }
            for mode in modes[running]:
                yield m.case("special", small, *scale, *mode, momentum=momentum, eps=eps)

    return samples


def batch_gradients(m: Maker) -> Iterator[Case]:
    """Samples of the backward of batch normalization."""
    for kind, tensor, c, model in _images(m):
        wide = tensor.view.astype(np.float64)
        axes = tuple(i for i in range(wide.ndim) if i != 1)
        kept = m.compute_dtype
        saved = [m.values(v, kept) for v in (wide.mean(axes), 1 / np.sqrt(wide.var(axes) + 1e-5))]
        running = [_stat(m, c, low=-1, high=1), _stat(m, c, low=0.3, high=2)]
        for train in (True, False):
            grad = m.tensor(*tensor.shape, layout="channels_last" if kind == "strided" else "contiguous")
            yield m.case(kind, grad, tensor, m.tensor(c, dtype=kept), *running, *saved, train, 1e-5,
                         [True, True, True], model=model)  # fmt: skip
    for train, weighted, mask in (
        (False, True, [True, False, True]),
        (True, False, [True, True, False]),
        (False, False, [True, False, False]),
    ):
        stats = [_stat(m, 3, low=low, high=high) for low, high in ((-1, 1), (0.03, 0.2), (-1, 1), (0.3, 2))]
        weight = m.tensor(3, dtype=m.compute_dtype) if weighted else None
        yield m.case("special", m.tensor(4, 3, 5), m.tensor(4, 3, 5), weight, *stats, train, 0.07, mask)
