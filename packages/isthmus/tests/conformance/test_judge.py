"""The judge: elements in ulps of their dtype; NaN, infinity and signed zero; statistical tests of random numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from isthmus.conformance.golden import Expected, Tolerance
from isthmus.conformance.judge import BINS, Verdict, judge, rounded, ulp_of
from isthmus.conformance.laws import broken_law
from isthmus.opset.dtypes import DTYPES
from isthmus.opset.operator import CHOSEN
from tests.helpers.conformance_data import EXACT, HALF_ULP

ONE_ULP = Tolerance(1, 0, "test")
NORMAL: dict[str, Any] = {"name": "normal", "mean": 0, "std": 1}
UNIFORM: dict[str, Any] = {"name": "uniform", "low": 0, "high": 1}
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn")


def _judge(got: Any, reference: Any, dtype: str, tolerance: Tolerance = ONE_ULP, **others: Any) -> Verdict:
    got, reference = np.asarray(got), np.asarray(reference)
    return judge(
        got.astype(DTYPES[dtype].numpy), Expected(dtype, reference.shape, reference, **others), tolerance
    )


def _neighbour(value: float, dtype: str, steps: int) -> np.ndarray:
    """Return the number of a dtype some steps further from zero."""
    kind = DTYPES[dtype].numpy
    bits = np.dtype(f"u{kind.itemsize}")
    return (np.array([value], kind).view(bits) + bits.type(steps)).view(kind)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [1.0, 1.5, 1.75, -2.0, 0.25])
def test_distance_is_counted_in_numbers_of_the_dtype(dtype: str, value: float) -> None:
    for steps in (0, 1, 2):
        got = _neighbour(value, dtype, steps)
        verdict = judge(got, Expected(dtype, (1,), np.array([value])), ONE_ULP)
        assert (verdict.problem == "") == (steps <= 1)
        # Beyond a power of two the numbers are twice as far apart, so a step may count as two.
        assert verdict.worst is not None
        assert steps <= verdict.worst.ulps <= 2 * steps


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_rounding_is_that_of_ml_dtypes_where_float32_is_exact(dtype: str) -> None:
    drawn = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    middles = np.arange(-300, 300, dtype=np.float32) / 64
    for given in (drawn, middles, np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)):
        with np.errstate(all="ignore"):
            should = given.astype(DTYPES[dtype].numpy)
            got = rounded(given.astype(np.float64), dtype)
        nan = np.isnan(should)
        bits = f"u{should.itemsize}"
        assert np.array_equal(nan, np.isnan(got))
        assert np.array_equal(should[~nan].view(bits), got[~nan].view(bits))


def test_bfloat16_is_rounded_once_not_twice() -> None:
    # Just above the midpoint between 1 and the next number: rounded via float32 it would become a tie.
    value = np.array([1 + 2.0**-8 + 2.0**-40])
    assert float(rounded(value, "bfloat16")[0]) == 1 + 2.0**-7
    assert float(value.astype(np.float32).astype(ml_dtypes.bfloat16)[0]) == 1.0


def test_truncation_is_not_within_half_an_ulp() -> None:
    reference = np.random.default_rng(0).normal(size=1000)
    truncated = (reference.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    assert _judge(truncated, reference, "bfloat16", HALF_ULP).wrong > 300
    assert _judge(reference, reference, "bfloat16", HALF_ULP).problem == ""


@pytest.mark.parametrize("dtype", FLOATS[:4])
@pytest.mark.parametrize(
    ("got", "reference", "right"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (-np.inf, np.inf, False),
        (np.nan, np.inf, False),
        (np.inf, np.nan, False),
        (1.0, np.nan, False),
        (np.nan, 1.0, False),
        (np.inf, 1.0, False),
        (1.0, np.inf, False),
        (0.0, -0.0, False),
        (-0.0, -0.0, True),
        (np.nan, 0.0, False),
    ],
)
def test_nan_and_infinity_must_be_in_the_expected_places(
    dtype: str, got: float, reference: float, right: bool
) -> None:
    verdict = _judge([1.0, got, 2.0], [1.0, reference, 2.0], dtype)
    assert (verdict.problem == "") == right
    if not right:
        assert verdict.wrong == 1
        assert verdict.worst is not None
        assert verdict.worst.index == (1,)


def test_a_huge_tolerance_does_not_excuse_nan() -> None:
    loose = Tolerance(1e9, 1e9, "test")
    assert _judge([np.nan], [1.0], "float32", loose, magnitude=np.array([1e30])).wrong == 1
    assert _judge([np.inf], [1.0], "float32", loose).wrong == 1


def test_results_beyond_the_largest_number_are_infinite() -> None:
    assert _judge([np.inf, -np.inf], [1e39, -1e300], "bfloat16").problem == ""
    assert _judge([np.inf], [65519.0], "float16", ONE_ULP).problem == ""  # within an ulp of the threshold
    assert _judge([65504.0], [65521.0], "float16", ONE_ULP).problem == ""
    assert _judge([np.inf], [60000.0], "float16").wrong == 1
    assert _judge([65504.0], [1e6], "float16").wrong == 1


def test_small_numbers_have_the_ulp_of_the_smallest() -> None:
    tiny = 2.0**-24
    assert ulp_of("float16", np.array([0.0, tiny, 2.0**-14])).tolist() == [tiny] * 3
    assert _judge([3 * tiny], [tiny], "float16").wrong == 1
    assert _judge([2 * tiny], [tiny], "float16").problem == ""


def test_a_sum_may_err_by_its_roundings_and_no_more() -> None:
    reference, magnitude = np.array([1e-3]), np.array([1000.0])
    allowed = Tolerance(1, 4, "four roundings")
    room = 4 * 2.0**-23 * 1000
    good = _judge(reference + 0.9 * room, reference, "float32", allowed, magnitude=magnitude)
    bad = _judge(reference + 1.1 * room, reference, "float32", allowed, magnitude=magnitude)
    assert (good.problem == "", bad.wrong) == (True, 1)
    assert _judge(reference + 0.9 * room, reference, "float32", allowed).wrong == 1


def test_exact_means_the_bits() -> None:
    assert _judge([0.0, -0.0, np.nan, 1.0], [0.0, -0.0, np.nan, 1.0], "float32", EXACT).problem == ""
    assert _judge([0.0], [-0.0], "float32", EXACT).wrong == 1
    got = _neighbour(1.0, "float32", 1)
    assert judge(got, Expected("float32", (1,), np.array([1.0])), EXACT).wrong == 1


def test_integers_and_bool_are_exact() -> None:
    big = 2**62
    assert _judge([big + 1, 7], np.array([big, 7]), "int64", Tolerance(100, 100, "")).wrong == 1
    assert _judge([True, False], np.array([True, True]), "bool").wrong == 1
    odd = np.array([1, 2], np.uint8).view(np.bool_)  # a bool whose byte is not 1
    assert judge(odd, Expected("bool", (2,), np.array([True, True])), EXACT).wrong == 1


def test_the_sign_of_a_zero_is_open_for_sums_and_chosen_inputs() -> None:
    assert _judge([-0.0], [0.0], "float32").wrong == 1
    assert _judge([-0.0], [0.0], "float32", CHOSEN).problem == ""
    assert _judge([-0.0], [0.0], "float32", Tolerance(1, 4, ""), magnitude=np.array([1.0])).problem == ""
    assert _judge([complex(-0.0, 1)], [1j], "complex64").problem == ""


def test_complex_numbers_part_by_part() -> None:
    reference = np.array([1 + 1j, complex(np.inf, 1)])
    assert _judge(reference, reference, "complex64").problem == ""
    assert _judge([1.001 + 1j, reference[1]], reference, "complex64").wrong == 1
    assert _judge([1 + 1.001j, reference[1]], reference, "complex64").wrong == 1
    assert _judge(np.array([1 + 1j, complex(1, np.inf)]), reference, "complex64").wrong == 1


def test_shape_and_dtype_are_part_of_the_result() -> None:
    expected = Expected("float32", (2,), np.zeros(2))
    assert "float32[3]" in judge(np.zeros(3, np.float32), expected, ONE_ULP).problem
    assert "float64[2]" in judge(np.zeros(2), expected, ONE_ULP).problem


def test_the_worst_element_is_named() -> None:
    reference = np.arange(12.0).reshape(3, 4) + 1
    got = reference.copy()
    got[1, 2] += 0.5
    got[2, 0] -= 0.001
    verdict = _judge(got, reference, "float32")
    assert verdict.wrong == 2
    assert verdict.worst is not None
    assert verdict.worst.index == (1, 2)
    assert "[1, 2] is 7.5, expected 7" in verdict.problem
    assert sum(verdict.histogram) == 12
    assert len(verdict.histogram) == len(BINS) + 1


@pytest.mark.parametrize("count", [200, 2_000, 70_000])
@pytest.mark.parametrize("seed", range(3))
def test_right_random_numbers_obey_their_laws(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert (
        broken_law(rng.normal(2, 3, count).astype(np.float32), {"name": "normal", "mean": 2, "std": 3}) == ""
    )
    assert broken_law(rng.uniform(-1, 3, count), {"name": "uniform", "low": -1, "high": 3}) == ""
    below_one = np.floor(rng.uniform(0, 1, count) * 256) / 256  # rounded to nearest, one could be 1
    assert broken_law(below_one.astype(ml_dtypes.bfloat16), UNIFORM) == ""
    assert broken_law(rng.random(count) < 0.1, {"name": "bernoulli", "p": 0.1}) == ""
    assert broken_law(rng.integers(-3, 9, count), {"name": "integers", "low": -3, "high": 9}) == ""
    wide = {"name": "integers", "low": -(1 << 50), "high": 1 << 50}
    assert broken_law(rng.integers(-(1 << 50), 1 << 50, count), wide) == ""
    alternating = rng.random(count) < np.resize([0.1, 0, 1], count)
    assert broken_law(alternating, {"name": "bernoulli", "p": [0.1, 0.0, 1.0]}) == ""
    assert broken_law(rng.exponential(0.5, count), {"name": "exponential", "rate": 2}) == ""
    assert broken_law(rng.permutation(count), {"name": "permutation"}) == ""


@pytest.mark.parametrize(
    ("numbers", "law", "what"),
    [
        (np.random.default_rng(0).normal(0.2, 1, 2000), NORMAL, "mean"),
        (np.random.default_rng(0).normal(0, 1.3, 2000), NORMAL, "deviation"),
        (np.random.default_rng(0).uniform(-1.732, 1.732, 2000), NORMAL, "not normal"),
        (np.linspace(0, 1.01, 2000), UNIFORM, "not all in"),
        (np.linspace(0, 1, 2000), UNIFORM, "not all in"),
        (np.full(2000, 0.5), UNIFORM, "deviation"),
        (np.arange(2000) % 2, {"name": "bernoulli", "p": 0.4}, "mean"),
        (np.arange(2000) / 2000, {"name": "bernoulli", "p": 0.5}, "integral"),
        (np.array([0, 1, 1]), {"name": "permutation"}, "permutation"),
        (np.roll(np.arange(300), 1), {"name": "permutation"}, "followed by the next"),
        (np.r_[np.arange(299, 99, -1), np.arange(100)][::-1], {"name": "permutation"}, "not shuffled"),
        (
            np.resize(np.random.default_rng(0).permutation(900) / 900, 5000),
            {"name": "uniform"},
            "elements 900 apart",
        ),
        (
            np.convolve(np.random.default_rng(0).normal(size=5001), [0.99, 0.14])[1:-1],
            NORMAL,
            "elements 1 apart",
        ),
        (np.arange(2000) * 2, {"name": "integers", "low": 0, "high": 4000}, "odd"),
        (
            np.random.default_rng(0).integers(0, 1 << 32, 2000),
            {"name": "integers", "low": 0, "high": (1 << 32) + (1 << 28)},
            "not integers",
        ),
        (np.full(2000, True), {"name": "bernoulli", "p": [1.0, 0.0]}, "mean"),
        (np.array([0.5, np.nan]), UNIFORM, "NaN"),
    ],
)
def test_wrong_random_numbers_break_their_laws(numbers: np.ndarray, law: dict[str, Any], what: str) -> None:
    assert what in broken_law(numbers, law)
