"""Pairs of calls with the distances of their tensors."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from isthmus_diagnostics.accuracy.gathering import distance
from isthmus_diagnostics.accuracy.metrics import TOLERANCES, Distance, tolerance
from isthmus_diagnostics.accuracy.pairing import Pair, key
from isthmus_diagnostics.accuracy.reading import Content, Recorded

# A dtype of fewer results is not that of the job.
_SHARE = 0.05
_SIZES = (
    "size",
    "shape",
    "split_sizes",
    "sizes",
    "length",
    "stride",
    "repeats",
    "padding_idx",
    "end",
    "start",
)
_UNWRITTEN = Distance(0.0, False, "memory that no call has written")
_UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale"
_COLLECTIVES = ("c10d::", "_c10d_functional::")
# Relative difference of two numbers that are one constant.
_EXACT = 1e-6


@dataclass(eq=False)
class Judged:
    """A pair with the distances of its tensors.

    Attributes:
        pair: the calls.
        inputs, outputs: distances by name.
        mixed: whether the jobs compute in different dtypes.
        arguments: arguments that differ, with both values.
    """

    pair: Pair
    inputs: dict[str, Distance]
    outputs: dict[str, Distance]
    mixed: bool = False
    arguments: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @cached_property
    def tolerance(self) -> float:
        """Largest error that rounding explains, in the dtypes of the less precise side if the jobs' dtypes differ."""
        sides = [
            tolerance(*(content.dtype for content in (*call.inputs.values(), *call.outputs.values())))
            for call in (*self.pair.a[:1], *self.pair.b[:1])
        ]
        return max(sides) if self.mixed else min(sides)

    @property
    def input_error(self) -> float:
        """Largest error of an input."""
        return max((d.error for d in self.inputs.values()), default=0.0)

    @property
    def error(self) -> float:
        """Largest error of a result."""
        return max((d.error for d in self.outputs.values()), default=0.0)

    @property
    def is_beyond(self) -> bool:
        """Whether a result differs by more than rounding."""
        return self.error > self.tolerance

    @property
    def verdict(self) -> str:
        """``equal``, ``rounding``, ``differs``, or ``only in A`` and ``only in B``."""
        if not self.pair.is_matched:
            return "only in A" if self.pair.a else "only in B"
        if self.is_beyond:
            return "differs"
        return "equal" if all(d.equal for d in self.outputs.values()) else "rounding"


def judge_pairs(pairs: list[Pair]) -> list[Judged]:
    """Return the pairs with their distances, in order.

    If a job multiplies its loss by a number in a step, and takes it out of the gradients before it uses them, the
    gradients in backward are compared without that factor.
    """
    judge = _Judge(_dtype([pair.a for pair in pairs]) != _dtype([pair.b for pair in pairs]))
    rows = [judge(pair, 1.0) for pair in pairs]
    by_step: dict[int, list[Judged]] = {}
    for row in rows:
        by_step.setdefault(row.pair.first.place.step, []).append(row)
    factors = _factors_of_scalers(pairs)
    factors |= {step: factor for step, own in by_step.items() if (factor := _factor_taken_out(own)) != 1.0}
    factor_of = [factors.get(row.pair.first.place.step, 1.0) for row in rows]
    return [
        row if factor == 1.0 else judge(row.pair, factor) for row, factor in zip(rows, factor_of, strict=True)
    ]


class _Judge:
    """Measures the tensors of pairs, each once."""

    def __init__(self, mixed: bool) -> None:
        self._mixed = mixed
        self._known: dict[tuple[float, ...], Distance] = {}

    def __call__(self, pair: Pair, factor: float) -> Judged:
        if not pair.is_matched:
            return Judged(pair, {}, {}, self._mixed)
        row = Judged(pair, {}, {}, self._mixed, _arguments(pair, factor))
        row.outputs = {
            name: self._distance(pair, a, b, factor) if _is_written(a, b) else _UNWRITTEN
            for name, a, b in pair.outputs()
        }
        # Memory before the first write to it matters only to calls that compute from it.
        row.inputs = {
            name: self._distance(pair, a, b, factor) if row.is_beyond or _is_written(a, b) else _UNWRITTEN
            for name, a, b in pair.inputs()
        }
        return row

    def _distance(self, pair: Pair, a: list[Content], b: list[Content], factor: float) -> Distance:
        is_gradient = pair.first.place.phase == "backward"
        scaled = is_gradient and len(a) != len(b)
        factors = [1.0] if factor == 1.0 else [1.0, *_factors_in(pair, a + b, factor)]
        found: list[Distance] = []
        for each in factors:
            parts = (scaled, each, *(id(part) for part in (*a, *b)))
            if parts not in self._known:
                self._known[parts] = distance(a, b, scaled, each)
            found.append(self._known[parts])
        return min(found, key=lambda each: each.error)


def _factors_in(pair: Pair, parts: list[Content], factor: float) -> list[float]:
    """Return the factors that tensors may have: of gradients, and of the scalars that scale them."""
    if pair.first.place.phase == "backward" or pair.first.operator.startswith(_COLLECTIVES):
        return [factor]
    return [factor, 1 / factor] if all(math.prod(part.shape) == 1 for part in parts) else []


def _is_written(a: list[Content], b: list[Content]) -> bool:
    return not any(part.unwritten for part in (*a, *b))


def _dtype(calls: list[list[Recorded]]) -> str:
    """Return the least precise dtype of a job, that of a few calls aside."""
    counts = Counter(
        content.dtype for records in calls for call in records[:1] for content in call.outputs.values()
    )
    floats = {dtype: counts[dtype] for dtype in TOLERANCES if counts[dtype]}
    used = [dtype for dtype, count in floats.items() if count >= _SHARE * sum(floats.values())]
    return max(used, key=tolerance, default="")


def _arguments(pair: Pair, factor: float) -> dict[str, tuple[Any, Any]]:
    """Return the arguments that differ on any rank, but sizes, which another parallelism changes."""
    if pair.is_module:
        return {}
    several = len(pair.a) + len(pair.b) > 2
    calls = zip(pair.a, pair.b, strict=True) if len(pair.a) == len(pair.b) else product(pair.a, pair.b)
    return {
        name: (a.arguments[name], b.arguments[name])
        for a, b in calls
        for name in a.arguments.keys() & b.arguments.keys()
        if a.arguments[name] != b.arguments[name]
        and not (several and name in _SIZES)
        and not _is_dtype(a.arguments[name])
        and not (factor != 1.0 and _is_ratio(a.arguments[name], b.arguments[name], factor))
    }


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str) and value in TOLERANCES


def _is_ratio(a: Any, b: Any, factor: float) -> bool:
    """Return whether two arguments are constants that scale the loss or the gradients."""
    if not all(isinstance(each, (int, float)) and not isinstance(each, bool) and each for each in (a, b)):
        return False
    return any(math.isclose(b / a, each, rel_tol=_EXACT) for each in (factor, 1 / factor))


def _factors_of_scalers(pairs: list[Pair]) -> dict[int, float]:
    """Return how many times B's gradients are A's, by the step, as gradient scalers of PyTorch take it out."""
    scales: tuple[dict[int, float], dict[int, float]] = ({}, {})
    for pair in pairs:
        for calls, found in zip((pair.a, pair.b), scales, strict=True):
            for call in calls[:1] if key(pair.first) == _UNSCALE else ():
                inverse = call.inputs.get("inv_scale")
                if inverse is not None and inverse.statistics is not None and inverse.statistics.mean > 0:
                    found.setdefault(call.place.step, 1 / inverse.statistics.mean)
    return {
        step: scales[1].get(step, 1.0) / scales[0].get(step, 1.0)
        for step in scales[0].keys() | scales[1].keys()
    }


def _factor_taken_out(rows: list[Judged]) -> float:
    """Return how many times B's gradients of a step are A's if those that are used after backward agree, else 1."""
    factor = next(_ratios(row for row in rows if _is_backward(row)), 1.0)
    if math.isclose(factor, 1.0, rel_tol=1e-3):
        return 1.0

    def is_near_one(ratio: float) -> bool:
        return abs(math.log(ratio)) < abs(math.log(ratio / factor))

    def takes_it_out(row: Judged) -> bool:
        ratios = [_ratio(a, b) for _, a, b in row.pair.outputs()]
        return bool(ratios) and all(ratio and is_near_one(ratio) for ratio in ratios)

    others = [row for row in rows if row.pair.is_matched and not _is_backward(row)]
    others = [
        row for row in others if _is_update(row) or not takes_it_out(row) or row.input_error <= row.tolerance
    ]
    # Clipping hides a factor from the optimizer, so what is read before that counts.
    uses = [
        [_ratio(a, b) for row in others if _is_update(row) is is_update for a, b in _gradients(row)]
        for is_update in (False, True)
    ]
    known = [ratio for ratio in uses[0] or uses[1] if ratio]
    agree = [ratio for ratio in known if is_near_one(ratio)]
    return factor if known and 2 * len(agree) > len(known) else 1.0


def _is_backward(row: Judged) -> bool:
    first = row.pair.first
    return first.place.phase == "backward" or first.operator.startswith(_COLLECTIVES)


def _is_update(row: Judged) -> bool:
    return row.pair.first.operator.startswith("optimizer::")


def _ratios(rows: Iterator[Judged]) -> Iterator[float]:
    """Yield the ratios of the scalars that differ: the gradient of a loss is one."""
    for row in rows:
        if row.pair.is_matched:
            for name, a, b in row.pair.inputs():
                if row.inputs[name].error > row.tolerance:
                    is_scalar = all(math.prod(part.shape) == 1 for part in (*a, *b))
                    yield (_ratio(a, b) if is_scalar else 1.0) or 1.0


def _gradients(row: Judged) -> Iterator[tuple[list[Content], list[Content]]]:
    """Yield the inputs of a call outside of backward that one job has computed in backward."""
    for name, a, b in row.pair.inputs():
        if name == "gradient" or any(_made_in_backward(part) for part in (a[0], b[0])):
            yield a, b


def _made_in_backward(content: Content) -> bool:
    made = content.rank.producers.get(content.number, [])
    return bool(made) and made[0].place.phase == "backward"


def _ratio(a: list[Content], b: list[Content]) -> float:
    """Return the ratio of the norms of as many parts, or 0."""
    if len(a) != len(b) or any(part.statistics is None for part in (*a, *b)):
        return 0.0
    norms = [math.hypot(*(part.statistics.norm for part in side if part.statistics)) for side in (a, b)]
    return norms[1] / norms[0] if all(0 < norm < math.inf for norm in norms) else 0.0
