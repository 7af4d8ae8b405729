"""Mistakes that only load, calls with an index out of range, or laws show; the correct kernels raise no alarm."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

import numpy as np
import pytest

from isthmus.conformance import direct
from isthmus.conformance.checks import checks_of, dtypes_of, run_check
from isthmus.conformance.device import Device
from isthmus.conformance.executor import Executor
from isthmus.conformance.generate import golden_cases
from isthmus.conformance.golden import Case
from isthmus.conformance.relations import GRADIENTS
from isthmus.conformance.subject import Subject
from isthmus.drivers import find
from isthmus.drivers.numpy.operators import library
from isthmus.opset import operators, schema_of
from tests.helpers.planted import PLANTED
from tools.mutation.kernel import Switch
from tools.mutation.mutant import Mutant

_FEW = 12  # cases of each dtype
SHOWN_BY = {
    "one_buffer_for_all_threads": "8 threads on 4 streams",
    "parameters_in_a_global": "8 threads on 4 streams",
    "results_through_one_row": "8 threads on 4 streams",
    "wrong_in_every_400th_call": "of 1024 in a row",
    "cached_by_address_shape_and_first_element": "elements are wrong",
    "cached_by_shape": "elements are wrong",
    "cached_by_shape_and_numbers": "elements are wrong",
    "number_of_the_first_call_compiled_in": "elements are wrong",
    "dtype_of_the_first_call_of_a_shape": "",
    "buffer_of_the_call_before": "",
    "tunes_itself_in_the_first_call": "the first call with these shapes gave different bits",
    "wraps_around": "accepted, expected an error",
    "clamps": "accepted, expected an error",
    "checks_the_upper_end_only": "accepted, expected an error",
    "class_below_zero_is_the_first": "accepted, expected an error",
    "skips_the_last_beyond_the_end": "accepted, expected an error",
    "clears_the_source_before_it_refuses": "the input source was modified",
    "step_between_two_tables": "law-monotonic",
    "large_gradients_clipped": "law-scaling",
    "steeper_near_zero": "law-gradient",
    "unsorted_values_beside_sorted_places": "law-unsorted",
    "gradient_of_a_row_without_its_sum": "law-gradient",
    "gradient_of_the_gate_without_its_slope": "law-gradient",
    "places_kept_in_float32": "load-long",
    "place_of_the_largest_in_float32": "load-long",
    "indices_through_float32": "load-long",
    "row_by_a_division_in_float32": "load-long",
    "a_counter_of_16_million": "load-long",
}
NAMES = {"load-long": "more than 2^24 elements"}  # of checks whose messages do not begin with their name
MUTANTS = [mutant for mutant in PLANTED if mutant.mutation in SHOWN_BY]


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Device.open(find("numpy").candidates[0]) as device:
        yield Executor(device)


@cache
def few_cases(name: str) -> list[Case]:
    wanted = [dtype for dtype in ("bfloat16", "float32") if dtype in operators()[name].dtypes]
    return [case for d in wanted for case in islice(golden_cases(operators()[name], dtypes=(d,)), _FEW)]


@cache
def switch(name: str) -> Switch:
    return Switch(name, schema_of(name), library.entries[name])


def first_problem(executor: Executor, name: str, only: str = "") -> str:
    """Return the first problem of an operator's kernel on a few cases and its checks, or of one check, or ""."""
    executor.forget_kernels()
    schema = schema_of(name)
    kernel = switch(name).operator
    for case in () if only else few_cases(name):
        outcome = executor.run(kernel, schema, case)
        if outcome.status == "failed":
            return outcome.message
    forward = [GRADIENTS[name].forward] if name in GRADIENTS else []
    kernels = {each: switch(each).operator for each in (*forward, name)}
    subject = Subject(executor, kernels, schema, few_cases(name))
    found = (
        run_check(check, subject, dtype)
        for check in ([only] if only else checks_of(name))
        for dtype in dtypes_of(check, subject)
    )
    return next((each.message for each in found if each and each.status == "failed"), "")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mutation)
def test_a_planted_mistake_is_found(executor: Executor, mutant: Mutant) -> None:
    assert mutant.wrong
    target, wrong = switch(mutant.kernel), mutant.wrong()
    target.current = lambda call: wrong(target.right, call)
    try:
        shown_by = SHOWN_BY[mutant.mutation]
        check = shown_by if shown_by.startswith(("law-", "load-")) else ""
        message = first_problem(executor, mutant.kernel, check)
    finally:
        target.current = None
    assert message and NAMES.get(shown_by, shown_by) in message


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted({mutant.kernel for mutant in MUTANTS}))
def test_the_correct_kernel_raises_no_alarm(executor: Executor, name: str) -> None:
    assert first_problem(executor, name) == ""


def test_a_direct_sum_is_the_convolution() -> None:
    import torch

    x, w = np.random.default_rng(0).normal(size=(2, 4, 7, 8)), np.ones((6, 2, 3, 2)).cumsum(0)
    found = direct.convolution(x, w, None, [2, 1], [1, 0], [1, 2], False, 2)
    expected = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), None, (2, 1), (1, 0), (1, 2), 2)
    assert found is not None
    np.testing.assert_allclose(found, expected.numpy())
