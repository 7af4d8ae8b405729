"""Checks of random results: bounds, moments, shape of the distribution, independence. Uses only NumPy.

The limits are wide (six standard deviations and more), so that a correct generator never fails. A wrong distribution
is off by far more, and results are reproducible from the seed.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from isthmus.conformance.arrays import Array

_DEVIATIONS = 6.0
_KOLMOGOROV = 2.6  # limit of D * sqrt(n): exceeded once in 400,000
_ENOUGH = 32  # elements needed to check moments
_HALF = 2
_INDEPENDENT = 1024  # elements needed to check independence
_CORRELATED = 7.0  # standard deviations: exceeded by chance once in 10 million results of 65,536 elements
_HEAVY = 100.0  # kurtosis of rare events
_PARTS = 8  # parts of a permutation, whose numbers go to every part alike
_MOST_IN_ORDER = 12  # fixed points of a random permutation: one on average, more than 12 once in 10 billion


def broken_law(got: Array, law: Mapping[str, Any]) -> str:
    """Return how a result violates a law, in one line, or "".

    Keys of a law, each optional: ``low`` and ``high`` (bounds, high excluded for uniform numbers and integers),
    ``mean``, ``std``, ``p`` (probability that a number is not 0), ``integral``, ``permutation``, and ``name``:
    "normal", "uniform", "bernoulli" (with ``p``, or a list of those of the elements in turn), "integers",
    "exponential" (with ``rate``), "permutation", "any".
    """
    name = law.get("name", "")
    if got.size == 0 or name == "any":
        return ""
    if isinstance(law.get("p"), list):
        every = [
            broken_law(got.reshape(-1)[i :: len(law["p"])], {**law, "p": p}) for i, p in enumerate(law["p"])
        ]
        return next(filter(None, every), "")
    values = got.astype(np.float64).reshape(-1)
    if not np.isfinite(values).all():
        return "a random number is NaN or infinite"
    if name == "permutation" or law.get("permutation"):
        same = np.array_equal(np.sort(values), np.arange(values.size))
        return _describe_order(values) if same else f"is not a permutation of 0 to {values.size - 1}"
    bounds = {"bernoulli": (0, 1), "exponential": (0, math.inf)}.get(name, (-math.inf, math.inf))
    low, high = law.get("low", bounds[0]), law.get("high", bounds[1])
    # A half may round a large integer up to the bound.
    open_end = name == "uniform" or (name == "integers" and got.dtype.itemsize > _HALF)
    if values.min() < low or values.max() > high or (open_end and values.max() == high):
        return f"values from {values.min():g} to {values.max():g} are not all in [{low:g}, {high:g})"
    if (name in ("bernoulli", "integers") or law.get("integral")) and (values != np.floor(values)).any():
        return "a value is not integral"
    mean, std = _moments(name, law)
    return (
        _off_moments(values, mean, std, _kurtosis(law))
        or _off_shape(values, name, law)
        or _describe_bias(got, law)
        or _describe_dependence(values)
    )


def _moments(name: str, law: Mapping[str, Any]) -> tuple[float | None, float | None]:
    low, high = law.get("low", 0.0), law.get("high", 1.0)
    if name == "uniform":
        return (low + high) / 2, (high - low) / math.sqrt(12)
    if name == "integers":
        return (low + high - 1) / 2, math.sqrt(((high - low) ** 2 - 1) / 12)
    if name == "bernoulli":
        return law["p"], math.sqrt(law["p"] * (1 - law["p"]))
    if name == "exponential":
        return 1 / law["rate"], 1 / law["rate"]
    return law.get("mean"), law.get("std")


def _kurtosis(law: Mapping[str, Any]) -> float:
    """Return at least the fourth moment over the square of the second: 9 of exponential, more of rare events."""
    p = law.get("p", 0)
    return max(9.0, 1 / (p * (1 - p)) if 0 < p < 1 else 0.0)


def _off_moments(values: Array, mean: float | None, std: float | None, kurtosis: float) -> str:
    if values.size < _ENOUGH:
        return ""
    found = float(values.mean())
    if mean is not None:
        spread = std if std is not None else float(values.std())
        if abs(found - mean) > _DEVIATIONS * spread / math.sqrt(values.size) + 1e-12:
            return f"the mean of {values.size} values is {found:.5g}, expected {mean:.5g}"
    if std is not None and std > 0:
        slack = _DEVIATIONS * math.sqrt((kurtosis - 1) / values.size) / 2
        if abs(float(values.std()) / std - 1) > slack:
            return f"the standard deviation of {values.size} values is {values.std():.5g}, expected {std:.5g}"
    return ""


def _off_shape(values: Array, name: str, law: Mapping[str, Any]) -> str:
    cumulative = _cumulative(name, law)
    if cumulative is None or values.size < _ENOUGH:
        return ""
    ordered = np.sort(values)
    # Results are rounded, so values repeat: the empirical distribution is compared at the ends of its steps.
    above = np.searchsorted(ordered, ordered, side="right") / values.size
    below = np.searchsorted(ordered, ordered, side="left") / values.size
    law_at = cumulative(ordered)
    distance = float(np.maximum(np.maximum(law_at - above, below - law_at), 0).max())
    if distance * math.sqrt(values.size) > _KOLMOGOROV:
        return f"values are not {name}: the distributions differ by {distance:.3f} (Kolmogorov-Smirnov)"
    return ""


def _describe_bias(got: Array, law: Mapping[str, Any]) -> str:
    """Whether the lowest bit of integers is biased, as when a wide range is filled from few random bits."""
    if law.get("name") != "integers" or got.dtype.kind not in "iu" or got.size < _ENOUGH:
        return ""
    low, high = law["low"], law["high"]
    share = (high // 2 - low // 2) / (high - low)
    found = float((got & 1).mean())
    if abs(found - share) > _DEVIATIONS * math.sqrt(share * (1 - share) / got.size):
        return f"{found:.3f} of {got.size} integers are odd, expected {share:.3f}"
    return ""


def _describe_dependence(values: Array) -> str:
    """Whether elements depend on others: on those at a fixed distance, or on their neighbours."""
    centered = values - values.mean()
    total = float(np.square(centered).sum())
    if values.size < _INDEPENDENT or not total:
        return ""
    if float((centered**4).mean()) > _HEAVY * (total / values.size) ** 2:  # few values decide the products
        return ""
    spectrum = np.fft.rfft(centered, 1 << (2 * values.size - 1).bit_length())
    products = np.fft.irfft(np.square(np.abs(spectrum)))[: values.size]
    counts = values.size - np.arange(1, values.size - _INDEPENDENT // 2)  # pairs at each distance
    scores = np.abs(products[1 : len(counts) + 1]) / total * values.size / np.sqrt(counts)
    worst = int(scores.argmax())
    if scores[worst] > _CORRELATED:
        found = scores[worst] / math.sqrt(counts[worst])
        return f"elements {worst + 1} apart depend on each other (correlation {found:.2f})"
    return ""


def _describe_order(values: Array) -> str:
    """Whether a permutation leaves many numbers where they were, or next to each other."""
    if text := _biased(values):
        return text
    fixed = int((values == np.arange(values.size)).sum())
    pairs = int((np.diff(values) == 1).sum())
    if values.size < _ENOUGH or max(fixed, pairs) <= _MOST_IN_ORDER:
        return ""
    kind = "numbers are where they were" if fixed > _MOST_IN_ORDER else "numbers are followed by the next"
    return f"{max(fixed, pairs)} of {values.size} {kind}: not shuffled"


def _biased(values: Array) -> str:
    """Whether parts of a permutation go to some places more often than to others."""
    n = values.size // _PARTS * _PARTS
    if n < _PARTS * _PARTS * _ENOUGH:
        return ""
    parts = values.astype(np.int64)[:n].reshape(_PARTS, -1) * _PARTS // values.size
    counts = np.stack([np.bincount(part, minlength=_PARTS) for part in parts])
    expected = n / _PARTS**2
    worst = float(np.abs(counts - expected).max())
    if worst > _DEVIATIONS * math.sqrt(expected):
        return f"parts of the permutation are not equally likely at each place: {worst / expected:.0%} off"
    return ""


def _cumulative(name: str, law: Mapping[str, Any]) -> Callable[[Array], Array] | None:
    if name == "normal":
        mean, std = law["mean"], law["std"]
        error = np.vectorize(math.erf, otypes=[np.float64])
        return lambda x: np.asarray((1 + error((x - mean) / (std * math.sqrt(2)))) / 2)
    if name == "uniform":
        low, width = law.get("low", 0.0), law.get("high", 1.0) - law.get("low", 0.0)
        return lambda x: np.asarray(np.clip((x - low) / width, 0, 1))
    if name == "integers":
        low, width = law["low"], law["high"] - law["low"]
        return lambda x: np.asarray(np.clip((np.floor(x) - low + 1) / width, 0, 1))
    if name == "exponential":
        return lambda x: np.asarray(1 - np.exp(-law["rate"] * x))
    return None
