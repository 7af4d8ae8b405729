"""The limit of a difference: the effect of rounding noise on the original, times a margin."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from isthmus_migrate.verify.run import Run

EXACT = 1e-6  # relative difference that needs no reason, in float32
MULTIPLE = 8  # margin over the effect of one ulp of noise
MEANINGLESS = 0.5  # relative limit from which a comparison says nothing
_WINDOW = 4  # neighbours on each side that share a scale: the effect of random noise on one value may be 0 by chance
_QUANTILES = (0.5, 0.75, 0.9, 0.99, 1.0)
# Adam makes a full step where the sign of a gradient flips. More noise makes this more frequent, not larger.
_TAIL = np.array([0, 0, 0, 1, 1], bool)
_SMALL = 64  # elements; the effect of noise on fewer may be 0 by chance

Array = np.ndarray[Any, Any]


class Reference(NamedTuple):
    """Another run of the original.

    Attributes:
        run: the run.
        ulps: size of the noise; 0 for a repetition without noise.
    """

    run: Run
    ulps: int

    @property
    def unit(self) -> int:
        """Divisor of a difference that makes it the effect of one ulp."""
        return max(1, self.ulps)


def relative_difference(first: float, second: float) -> float:
    """Return the relative difference of two numbers; 0 if both are NaN."""
    if first == second or (math.isnan(first) and math.isnan(second)):
        return 0.0
    if not (math.isfinite(first) and math.isfinite(second)):
        return math.inf
    return abs(first - second) / max(abs(first), abs(second))


def limits(
    values: Sequence[float], noisy: Sequence[tuple[Sequence[float], int]], floor: float
) -> list[float]:
    """Return the limit of the relative difference of each value of a series.

    Args:
        values: series of the original.
        noisy: the same series of other runs of it, each with the unit of its noise.
        floor: smallest limit.
    """
    effects = [0.0] * len(values)
    for series, unit in noisy:
        for index, (first, second) in enumerate(zip(values, series, strict=False)):
            effects[index] = max(effects[index], relative_difference(first, second) / unit)
    window = [max(effects[max(0, at - _WINDOW) : at + _WINDOW + 1]) for at in range(len(values))]
    return [max(floor, MULTIPLE * effect) for effect in window]


class Distance(NamedTuple):
    """Difference of two arrays, at the quantile where it is largest compared with its limit.

    Attributes:
        difference: of the sorted absolute differences, relative to the largest value.
        limit: limit of this difference; infinite if noise is as large as the values.
    """

    difference: float
    limit: float


def distance(
    first: Array, second: Array, noisy: Sequence[tuple[Array, int]], floor: float, common: float = 0.0
) -> Distance:
    """Compare two floating-point arrays of one shape by the quantiles of their differences.

    A few elements that noise moves far, such as the key third of the bias of a fused attention projection, do not
    hide a difference of the others.

    Args:
        first: array of the original.
        second: array of the other run.
        noisy: the same array of other runs of the original, each with the unit of its noise.
        floor: smallest limit, relative.
        common: effect of noise on other arrays, which a small array has at least.
    """
    top = _largest_magnitude(first, second)
    if np.array_equal(first, second, equal_nan=True):
        return Distance(0.0, floor)
    if not top or not math.isfinite(top) or not np.isfinite(first - second).all():
        return Distance(math.inf, floor)
    effects = [
        quantiles(first, other) / np.where(_TAIL, 1, unit)
        for other, unit in noisy
        if other.shape == first.shape
    ]
    effect = np.max([np.zeros(len(_QUANTILES)), *effects], axis=0)
    if first.size < _SMALL:
        effect = np.maximum(effect, common * top)
    bounds = np.maximum(floor, MULTIPLE * effect / top)
    found = quantiles(first, second) / top
    telling = bounds <= MEANINGLESS
    if not telling.any():
        return Distance(float(found[-1]), math.inf)
    worst = int(np.argmax(np.where(telling, found / bounds, -1.0)))
    return Distance(float(found[worst]), float(bounds[worst]))


def quantiles(first: Array, second: Array) -> Array:
    """Return quantiles of the absolute differences of two arrays of one shape."""
    difference = np.abs(first - second)
    return np.quantile(np.where(np.isfinite(difference), difference, np.inf), _QUANTILES, method="lower")


def common_effect(arrays: Sequence[tuple[Array, Array, int]]) -> float:
    """Return the median effect of one ulp over arrays: (original, noisy, unit), relative to the largest value."""
    found = [
        float(quantiles(first, second)[-1]) / top / unit
        for first, second, unit in arrays
        if first.shape == second.shape and first.size and (top := _largest_magnitude(first, second))
    ]
    return float(np.median(found)) if found and all(map(math.isfinite, found)) else 0.0


def _largest_magnitude(first: Array, second: Array) -> float:
    return float(max(np.abs(first).max(initial=0), np.abs(second).max(initial=0)))
