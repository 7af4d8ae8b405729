"""Random numbers. A case specifies the distribution of the result instead of values; equal seeds give equal results,
other seeds other results."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.operator import Operator, op
from isthmus.opset.sampling import Case, Maker

_CHANCES = (0.1, 0.5, 0.9, 0.0, 1.0)  # probabilities of the elements in turn
_OPEN = (3, None)  # up to the largest integer of the dtype
_WIDE = {  # all of 32 bits, and more
    **dict.fromkeys(dt.INTEGERS, (_OPEN,)),
    "int64": (_OPEN, (0, 3 << 30), (0, 3 << 40), (-(1 << 50), 1 << 50)),
}
_SIZES = ((1,), (5,), (129,), (2, 3, 5, 7, 11), (67, 1031))  # the last above 65,536


def _draws(*settings: tuple[Any, ...], wide: Mapping[str, Sequence[tuple[Any, ...]]] | None = None) -> Any:
    """Return in-place draws into tensors of several sizes and layouts; ``wide`` settings are of single dtypes."""

    def samples(m: Maker) -> Iterator[Case]:
        for args in (*settings, *(wide or {}).get(m.dtype, ())):
            yield m.case("large", m.tensor(61, 67), *args, model="llama")
        for shape in (*_SIZES, *(((263, 1031),) if m.dtype in ("float32", "int64") else ())):
            yield m.case("large" if len(shape) == 2 else "contiguous", m.tensor(*shape), *settings[-1])
        yield m.case("strided", m.tensor(61, 67, layout="transposed"), *settings[0])
        yield m.case("strided", m.tensor(61, 67, layout="sliced"), *settings[0])
        yield m.case("zero-size", m.tensor(0, 5), *settings[0])

    return samples


def _rare(m: Maker) -> Iterator[Case]:
    yield from _draws((0.3,), (0.9,))(m)
    for p in (0.002, 1.0, 0.0):  # finer than 8 random bits; random numbers that round to 1
        yield m.case("large", m.tensor(257, 263), p)


def _bernoulli(m: Maker) -> Iterator[Case]:
    yield m.case("large", m.values([[0.3] * 67] * 61))
    # The chances alternate along rows and columns, so that those of other elements differ.
    for layout, width in (("contiguous", 263), ("contiguous", 264), ("transposed", 263), ("sliced", 263)):
        chances = m.values(np.resize(_CHANCES, (251, width)), layout=layout)
        yield m.case("large" if layout == "contiguous" else "strided", chances)
    if m.dtype == "float32":  # more than 2^18
        yield m.case("large", m.values(np.resize(_CHANCES, (263, 1031))))
    yield m.case("zero-size", m.tensor(0, 5, low=0, high=1))


def _dropouts(m: Maker) -> Iterator[Case]:
    constant = np.full((61, 67), 1.5)
    for p in (0.25, 0.5):
        yield m.case("large", m.values(constant), p, True, model="bert")
    for shape in (*_SIZES, *(((263, 1031),) if m.dtype == "float32" else ())):
        yield m.case("large" if len(shape) == 2 else "contiguous", m.values(np.full(shape, 1.5)), 0.75, True)
    if m.dtype in ("float32", "float64"):  # finer than 8 random bits; a half rounds the mean
        yield m.case("large", m.values(np.full((257, 263), 1.5)), 0.002, True)
    yield m.case("strided", m.values(constant, layout="transposed"), 0.25, True)
    yield m.case("contiguous", m.values(constant), 0.25, False)
    yield m.case("contiguous", m.values(constant), 1.0, True)
    yield m.case("contiguous", m.values(constant), 0.25, None)
    yield m.case("zero-size", m.tensor(0, 5), 0.25, True)


def _permutations(m: Maker) -> Iterator[Case]:
    for n in (0, 2, 3, 17, 255, 1031, 4095, 65_535, 270_001, 1_052_675):
        yield m.case("large" if n > 1000 else "contiguous", n, dtype=m.dtype)


def _normal(a: dict[str, Any]) -> dict[str, Any]:
    return {"self": {"name": "normal", "mean": a["mean"], "std": a["std"]}}


def _uniform(a: dict[str, Any]) -> dict[str, Any]:
    return {"self": {"name": "uniform", "low": a["from"], "high": a["to"]}}


def _exponential(a: dict[str, Any]) -> dict[str, Any]:
    above_zero = float(ml_dtypes.finfo(dt.DTYPES[a["self"].dtype].numpy).smallest_subnormal)
    return {"self": {"name": "exponential", "rate": a["lambd"], "low": above_zero}}


def _integers(a: dict[str, Any]) -> dict[str, Any]:
    high = int(np.iinfo(dt.DTYPES[a["self"].dtype].numpy).max) + 1 if a["to"] is None else a["to"]
    return {"self": {"name": "integers", "low": a.get("from", 0), "high": high}}


def _each_law(a: dict[str, Any]) -> dict[str, Any]:
    chances = [float(p) for p in a["self"].view.reshape(-1)[: len(_CHANCES)]]
    return {"out": {"name": "bernoulli", "p": chances}}


def _drop_law(a: dict[str, Any]) -> dict[str, Any]:
    """Dropout of a constant: 0 with probability p, else the constant / (1 - p). No dropout if ``train`` is False."""
    p, values = 0.0 if a["train"] is False else a["p"], a["input"].view
    value = float(values.flat[0]) if values.size else 1.0
    scaled = value / (1 - p) if p < 1 else 0.0
    mean = value if p < 1 else 0.0
    low = scaled if p == 0 else 0.0
    high = scaled * (1 + 2.0**-20)  # 1 / (1 - p) is rounded
    out = {"low": low, "high": high, "mean": mean, "std": math.sqrt(p * (1 - p)) * scaled, "p": 1 - p}
    return {"out0": out, "out1": {"name": "bernoulli", "p": 1 - p}}


OPERATORS: list[Operator] = [
    op("normal_", dt.FLOATS, "None", "None", _draws((0.0, 1.0), (0.5, 0.02)), law=_normal),
    op("uniform_", dt.FLOATS, "None", "None", _draws((0.0, 1.0), (-0.25, 1.5)), law=_uniform),
    op("exponential_", dt.FLOATS, "None", "None", _draws((1.0,), (2.5,)), law=_exponential),
    op("bernoulli_.float", dt.FLOATS, "None", "None", _rare,
       law=lambda a: {"self": {"name": "bernoulli", "p": a["p"]}}),
    op("bernoulli", dt.FLOATS, "like(self)", "self.dtype", _bernoulli,
       law=_each_law),
    op("random_.from", (*dt.INTEGERS, "float32"), "None", "None", _draws((0, 100), (3, 19), wide=_WIDE),
       law=_integers),
    op("random_.to", (*dt.INTEGERS, "float32"), "None", "None",
       _draws((100,), wide={"int64": ((3 << 30,), (1 << 45,))}), law=_integers),
    op("native_dropout", dt.FLOATS, "(input.shape, input.shape)", '(input.dtype, "bool")', _dropouts, law=_drop_law),
    op("randperm", ("int64", "int32"), "(n,)", "dtype", _permutations,
       law=lambda a: {"out": {"name": "permutation"}}),
]  # fmt: skip
