"""Hand-written golden data for tests of the suite: operators with obvious results. NumPy only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.conformance.generate import digest
from isthmus.conformance.golden import Case, Expected, OperatorEntry, Tensor, Tolerance, Writer, write_cases
from isthmus.opset import schema_of
from isthmus.opset.dtypes import DTYPES

HALF_ULP = Tolerance(0.5, 0, "one correctly rounded operation")
EXACT = Tolerance()
FLOATS = ("float32", "bfloat16")
Array = np.ndarray[Any, np.dtype[Any]]


def values(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Random values of a dtype."""
    drawn = np.random.default_rng(seed).normal(size=shape) * 8
    return drawn.astype(DTYPES[dtype].numpy)


def wide(tensor: Tensor) -> Array:
    """Convert floats to float64; return integers unchanged."""
    floating = DTYPES[str(tensor.array.dtype)].kind == "float"
    return tensor.array.astype(np.float64) if floating else tensor.array


def layouts(dtype: str) -> dict[str, Tensor]:
    """A tensor of shape (5, 4) in each layout, and some of other shapes."""
    storage = values((60,), dtype, 1)
    return {
        "contiguous": Tensor.contiguous(values((5, 4), dtype, 2)),
        "strided": Tensor(storage, (5, 4), (9, 2), 3),
        "broadcast": Tensor(storage[:4], (5, 4), (0, 1)),
        "zero-size": Tensor.contiguous(values((0, 4), dtype, 3)),
        "0-dim": Tensor.contiguous(values((), dtype, 4)),
        "large": Tensor.contiguous(values((64, 129), dtype, 5)),
    }


def _pairs(operator: str, function: Callable[[Any, Any], Any], with_alpha: bool) -> list[Case]:
    cases = []
    for dtype in (*FLOATS, "int64"):
        for layout, left in layouts(dtype).items():
            right = Tensor.contiguous(values(left.shape, dtype, 6))
            reference = np.asarray(function(wide(left), wide(right)))
            arguments: list[Any] = [left, right, *([1] if with_alpha else [])]
            expected = Expected(dtype, left.shape, reference)
            cases.append(Case(layout, operator, dtype, layout, arguments, [expected], HALF_ULP))
    return cases


def _copies() -> list[Case]:
    cases = []
    for layout, target in layouts("float32").items():
        if layout == "broadcast":
            continue
        source = values(target.shape, "float32", 7)
        written = {"self": Expected("float32", target.shape, source.astype(np.float64))}
        arguments = [target, Tensor.contiguous(source)]
        cases.append(Case(layout, "aten::copy_", "float32", layout, arguments, [], EXACT, written))
    return cases


def _lists() -> list[Case]:
    parts = [Tensor.contiguous(values((n, 3), "float32", n)) for n in (1, 4, 2)]
    joined = np.concatenate([wide(part) for part in parts])
    sums = [Expected("float32", part.shape, wide(part) + 2.5) for part in parts]
    whole = Expected("float32", joined.shape, joined)
    return [
        Case("rows", "aten::cat", "float32", "contiguous", [parts, 0], [whole], EXACT),
        Case("three", "aten::_foreach_add.Scalar", "float32", "contiguous", [parts, 2.5], [sums], HALF_ULP),
    ]


def _random() -> list[Case]:
    law = {"name": "uniform", "low": -1.0, "high": 3.0}
    cases = []
    for size in (2000, 5):
        target = Tensor.contiguous(np.zeros(size, np.float32))
        written = {"self": Expected("float32", (size,), law=law)}
        arguments: list[Any] = [target, -1.0, 3.0]
        cases.append(
            Case(f"{size}", "aten::uniform_", "float32", "contiguous", arguments, [], EXACT, written)
        )
    return cases


def _sums() -> list[Case]:
    cases = []
    for dtype in FLOATS:
        tensor = Tensor.contiguous(values((6, 257), dtype, 8))
        reference, magnitude = wide(tensor).sum(1), np.abs(wide(tensor)).sum(1)
        expected = Expected(dtype, (6,), reference, magnitude)
        tolerance, arguments = Tolerance(0.5, 257, "a sum of 257 in float32"), [tensor, [1], False]
        place = ("rows", "aten::sum.dim_IntList", dtype, "contiguous")
        cases.append(Case(*place, arguments, [expected], tolerance))
    return cases


def write_golden(folder: Path, seed: int = 0) -> Path:
    """Write golden data of all these operators."""
    families = {
        "pointwise": _pairs("aten::add.Tensor", np.add, True)
        + _pairs("aten::mul.Tensor", np.multiply, False),
        "shape": [*_copies(), *_lists()],
        "random": _random(),
        "reduction": _sums(),
    }
    writer = Writer(folder, opset=digest(), seed=seed, numpy="test")
    for family, cases in families.items():
        for name in sorted({case.operator for case in cases}):
            tiers = ("by hand", "core") if family == "pointwise" else ()
            its = [case for case in cases if case.operator == name]
            entry = OperatorEntry(schema_of(name).text, family, len(its), tiers, random=family == "random")
            files = write_cases(folder, name, its)
            writer.operator(name, entry, files)
    writer.close()
    return folder


def bfloat16(*numbers: float) -> Array:
    """An array of bfloat16."""
    return np.array(numbers).astype(ml_dtypes.bfloat16)
