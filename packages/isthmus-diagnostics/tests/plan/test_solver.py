"""The solver against every combination, and against what a pipeline keeps."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus_diagnostics.plan import solver
from isthmus_diagnostics.plan.choices import WHOLE, Unit, choices
from isthmus_diagnostics.plan.solver import Moment, Option, peak, solve


def one_f_one_b(layers: int, in_flight: int, bases: list[int]) -> list[Moment]:
    """Moments of a stage that keeps so many micro-batches: after the forward, and in each layer's backward."""
    moments = [Moment(bases[-1], (in_flight,) * layers)]
    for index in range(layers):
        counts = tuple(in_flight if other <= index else in_flight - 1 for other in range(layers))
        moments.append(Moment(bases[index], counts, index))
    return moments


units = st.builds(
    Unit,
    time=st.floats(0.1, 10),
    saved=st.dictionaries(st.integers(0, 6), st.just(0), max_size=3),
    inputs=st.dictionaries(st.integers(0, 6), st.just(0), max_size=2),
    calls=st.just(1),
)


@st.composite
def layer_options(draw: st.DrawFn) -> list[Option]:
    """Options of a layer with up to eight modules, two of them inside another."""
    names = draw(st.sampled_from((["a"], ["a", "a.b", "a.c"], ["a", "a.b", "a.c", "d", "e", "f", "g", "h"])))
    sizes = draw(st.lists(st.integers(1, 9), min_size=7, max_size=7))
    layer = {name: draw(units) for name in [WHOLE, *names]}
    for unit in layer.values():
        for storages in (unit.saved, unit.inputs):
            storages.update({key: sizes[key] for key in storages})
    return [each.option for each in choices(layer, draw(st.integers(0, 3)), draw(st.integers(0, 5)), None)]


@st.composite
def models(draw: st.DrawFn) -> tuple[list[list[Option]], list[Moment], int]:
    kinds = draw(st.lists(layer_options(), min_size=1, max_size=2))
    layers = [draw(st.sampled_from(kinds)) for _ in range(draw(st.integers(1, 6)))]
    while combinations(layers) > 2_000:
        layers.pop()
    bases = draw(st.lists(st.integers(0, 30), min_size=len(layers) + 1, max_size=len(layers) + 1))
    moments = one_f_one_b(len(layers), draw(st.integers(1, 4)), bases)
    keep, least = peak(layers, moments, [0] * len(layers)), min(bases)
    return layers, moments, draw(st.integers(least, keep))


def combinations(layers: list[list[Option]]) -> int:
    number = 1
    for options in layers:
        number *= len(options)
    return number


@settings(max_examples=50)
@given(models())
def test_the_solver_equals_brute_force(model):
    layers, moments, memory = model
    every = itertools.product(*(range(len(options)) for options in layers))
    fitting = [solver.time(layers, each) for each in every if peak(layers, moments, each) <= memory]
    found = solve(layers, moments, memory)
    assert (found is None) == (not fitting)
    if found:
        assert peak(layers, moments, found) <= memory
        assert solver.time(layers, found) == pytest.approx(min(fitting), rel=1e-12)


def test_the_first_choice_stays_if_the_search_finds_none_faster():
    # The bound prunes the optimum, which is known, and keeps slower choices that leave memory unused.
    few = [Option(0, 21, 3), Option(1, 3, 21)]
    many = [
        Option(0, 40, 0),
        Option(1, 14, 24),
        Option(1, 31, 0),
        Option(2, 22, 9),
        Option(2, 26, 0),
        Option(3, 17, 9),
    ]
    layers = [few, few, many, many, few]
    found = solve(layers, one_f_one_b(5, 1, [0] * 6), 120)
    assert found
    assert solver.time(layers, found) == 1


def test_a_deep_model_is_solved_within_the_gap():
    options = [Option(0, 1000, 10), *(Option(i + i * i / 10, 1000 - 80 * i, 100) for i in range(1, 12))]
    moments = one_f_one_b(48, 4, [500] * 49)
    memory = 500 + 4 * 48 * 600
    found = solve([options] * 48, moments, memory, gap=1e-3)
    assert found
    assert peak([options] * 48, moments, found) <= memory
    # The options lie on a convex curve: the optimum mixes neighbours, here 5 of 11.
    assert solver.time([options] * 48, found) <= 48 * (5 + 25 / 10) * 1.02


def test_a_stage_with_more_micro_batches_in_flight_recomputes_more():
    layers = [[Option(0, 10, 0), Option(1, 2, 0)]] * 4
    recomputed = [sum(solve(layers, one_f_one_b(4, count, [0] * 5), 50) or []) for count in (1, 2, 3, 4)]
    assert recomputed == sorted(recomputed)
    assert recomputed[0] == 0
    assert recomputed[-1] == 4


def test_storages_count_once():
    shared = {1: 100}
    layer = {
        WHOLE: Unit(time=5, inputs={0: 10}, calls=1),
        "a": Unit(time=1, saved={0: 10, **shared}, inputs={0: 10}, calls=1),
        "b": Unit(time=1, saved={**shared, 2: 30}, inputs=shared, calls=1),
    }
    found = {each.recomputed: each.option for each in choices(layer, 0, 0, None)}
    assert found[()].kept == 140
    assert found[("b",)].kept == 110  # its input is the output that "a" saves
    assert ("a",) not in found  # would save nothing: "b" keeps the storage
    assert found[(WHOLE,)].kept == 10
    assert found[(WHOLE,)].transient == 130


def test_later_modules_have_been_freed_when_an_earlier_one_is_recomputed():
    layer = {
        WHOLE: Unit(time=9, inputs={0: 1}, calls=1),
        "a": Unit(time=1, saved={1: 50}, inputs={0: 1}, calls=1),
        "b": Unit(time=0.5, saved={2: 40}, inputs={3: 1}, calls=1),
    }
    found = {each.recomputed: each.option for each in choices(layer, 0, 5, None)}
    assert found[("a",)].transient == 5 + 50 - 40
    assert found[("b",)].transient == 5 + 40
