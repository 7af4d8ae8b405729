"""The tool that finds sums of 16-bit numbers made in 16 bits: what it measures, on the CPU and on the chip."""

from __future__ import annotations

import pytest
import torch

from tools.accumulation import __main__ as page
from tools.accumulation.errors import ROUNDED_ONCE, Errors, spacings

pytestmark = pytest.mark.host("CPU's kernels compute for it")


def test_errors_are_in_spacings_of_the_exact_number() -> None:
    exact = torch.tensor([1.0, 256.0], dtype=torch.float64)
    for found, error in (
        ([1.0, 256.0], 0.0),
        ([1.0, 258.0], 1.0),
        ([1.0078125, 256.0], 0.0625),
        ([2.0, 254.0], 8.0),
    ):
        measured = spacings(torch.tensor(found, dtype=torch.bfloat16), exact.float(), exact, largest=0.0)
        assert measured == error, found
    assert spacings(torch.tensor([1.0], dtype=torch.float16), exact[:1].float(), exact[:1], largest=4e3) < 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_sum_in_16_bits_is_seen(dtype: torch.dtype) -> None:
    errors = Errors()
    numbers = torch.linspace(0.5, 3, 3000).to(dtype)
    with errors:
        torch.zeros(1, dtype=dtype).index_add_(0, torch.zeros(3000, dtype=torch.long), numbers)
        numbers.sum(0)
    on_cpu, on_chip = errors.worst["index_add"]
    assert on_cpu > 4 and on_chip <= ROUNDED_ONCE
    assert max(errors.worst["sum"]) <= ROUNDED_ONCE


def test_an_error_without_a_reason_fails() -> None:
    worst = {"index_add": [4.0, 0.5], "cumsum": [2.0, 2.0], "addr": [2.0, 2.0], "sum": [0.5, 0.5]}
    rows, wrong = page.rows_of_errors(worst)
    assert wrong == ["cumsum"] and len(rows) == 3
    assert rows[2].endswith("| in float32 on the chip |")
