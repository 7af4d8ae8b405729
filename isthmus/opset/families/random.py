"""Random numbers. A case specifies the distribution of the result instead of values; equal seeds give equal results,
other seeds other results."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.operator import Operator, op
from isthmus.opset.sampling import Case, Maker


def _draws(*settings: tuple[Any, ...], low: int = 0) -> Any:
    """In-place draws into a large tensor, a strided one and an empty one."""

    def samples(m: Maker) -> Iterator[Case]:
        for args in settings:
            yield m.case("large", m.tensor(61, 67), *args, model="llama")
        yield m.case("strided", m.tensor(61, 67, layout="transposed"), *settings[0])
        yield m.case("strided", m.tensor(61, 67, layout="sliced"), *settings[0])
        yield m.case("zero-size", m.tensor(0, 5), *settings[0])

    return samples


def _bernoulli(m: Maker) -> Iterator[Case]:
    yield m.case("large", m.values([[0.3] * 67] * 61))
    yield m.case("zero-size", m.tensor(0, 5, low=0, high=1))


def _dropouts(m: Maker) -> Iterator[Case]:
    constant = np.full((61, 67), 1.5)
    for p in (0.25, 0.5):
        yield m.case("large", m.values(constant), p, True, model="bert")
    yield m.case("strided", m.values(constant, layout="transposed"), 0.25, True)
    yield m.case("contiguous", m.values(constant), 0.25, False)
    yield m.case("contiguous", m.values(constant), 1.0, True)
    yield m.case("zero-size", m.tensor(0, 5), 0.25, True)


def _permutations(m: Maker) -> Iterator[Case]:
    for n in (1, 17, 1031):
        yield m.case("large" if n > 1000 else "contiguous", n, dtype=m.dtype)


def _normal(a: dict[str, Any]) -> dict[str, Any]:
    return {"self": {"name": "normal", "mean": a["mean"], "std": a["std"]}}


def _uniform(a: dict[str, Any]) -> dict[str, Any]:
    return {"self": {"name": "uniform", "low": a["from"], "high": a["to"]}}


def _integers(a: dict[str, Any]) -> dict[str, Any]:
    return {"self": {"name": "integers", "low": a.get("from", 0), "high": a["to"]}}


def _each_law(a: dict[str, Any]) -> dict[str, Any]:
    chances = a["self"].storage
    return {"out": {"name": "bernoulli", "p": float(chances[0]) if chances.size else 0.5}}


def _drop_law(a: dict[str, Any]) -> dict[str, Any]:
    """Dropout of a constant: 0 with probability p, else the constant / (1 - p). No dropout in evaluation."""
    p, storage = a["p"] if a["train"] else 0.0, a["input"].storage
    value = float(storage[0]) if storage.size else 1.0
    scaled = value / (1 - p) if p < 1 else 0.0
    mean = value if p < 1 else 0.0
    low = scaled if p == 0 else 0.0
    out = {"low": low, "high": scaled, "mean": mean, "std": math.sqrt(p * (1 - p)) * scaled}
    return {"out0": out, "out1": {"name": "bernoulli", "p": 1 - p}}


OPERATORS: list[Operator] = [
    op("normal_", dt.FLOATS, "None", "None", _draws((0.0, 1.0), (0.5, 0.02)), law=_normal),
    op("uniform_", dt.FLOATS, "None", "None", _draws((0.0, 1.0), (-0.25, 1.5)), law=_uniform),
    op("bernoulli_.float", dt.FLOATS, "None", "None", _draws((0.3,), (0.9,)),
       law=lambda a: {"self": {"name": "bernoulli", "p": a["p"]}}),
    op("bernoulli", dt.FLOATS, "like(self)", "self.dtype", _bernoulli,
       law=_each_law),
    op("random_.from", (*dt.INTEGERS, "float32"), "None", "None", _draws((0, 100), (3, 19)), law=_integers),
    op("random_.to", (*dt.INTEGERS, "float32"), "None", "None", _draws((100,)), law=_integers),
    op("native_dropout", dt.FLOATS, "(input.shape, input.shape)", '(input.dtype, "bool")', _dropouts, law=_drop_law),
    op("randperm", ("int64", "int32"), "(n,)", "dtype", _permutations,
       law=lambda a: {"out": {"name": "permutation"}}),
]  # fmt: skip
