"""Checks of the operators that samplers of tokens call, on a chip whose memory the CPU cannot address."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DRAWS = 40_000


def check_all() -> None:
    """Raise AssertionError for the first operator that differs from the CPU's, or from its distribution."""
    for dtype in INTEGERS:
        _check_shifts(dtype)
    _check_draws()
    _check_multinomial()
    _check_others()


def _same(found: Tensor, expected: Tensor, what: Any) -> None:
    assert found.dtype == expected.dtype and torch.equal(found.cpu(), expected), (what, found, expected)


def _check_shifts(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    numbers = torch.tensor([0, 1, 5, 77, info.max, info.max // 3, info.min, info.min // 3 + 1], dtype=dtype)[
        :, None
    ]
    shifts = torch.tensor([0, 1, 3, info.bits - 2, info.bits - 1, info.bits, 100], dtype=dtype)
    if dtype != torch.uint8:
        shifts = torch.cat([shifts, torch.tensor([-1, -5], dtype=dtype)])
    on_chip, by = numbers.to("chip"), shifts.to("chip")
    whole = numbers.expand(-1, len(shifts)).clone()
    _same(on_chip << by, numbers << shifts, dtype)
    _same(on_chip >> by, numbers >> shifts, dtype)
    _same(5 << by, 5 << shifts, dtype)
    _same(5 >> by, 5 >> shifts, dtype)
    _same(whole.to("chip").__ilshift__(by), whole.clone().__ilshift__(shifts), dtype)
    _same(whole.to("chip").__irshift__(by), whole.clone().__irshift__(shifts), dtype)
    for amount in (0, 3, info.bits - 1, info.bits):
        _same(on_chip << amount, numbers << amount, (dtype, amount))
        _same(on_chip >> amount, numbers >> amount, (dtype, amount))
        _same(
            on_chip.clone().bitwise_left_shift_(amount), numbers.bitwise_left_shift(amount), (dtype, amount)
        )
        _same(
            on_chip.clone().bitwise_right_shift_(amount), numbers.bitwise_right_shift(amount), (dtype, amount)
        )
    _same(on_chip.bitwise_right_shift(by), numbers.bitwise_right_shift(shifts), dtype)


def _distance(values: Tensor, cumulative: Any) -> float:
    """Return the distance of Kolmogorov and Smirnov from a distribution, times the root of the number of values."""
    ordered = values.double().cpu().flatten().sort().values
    law = cumulative(ordered)
    above = torch.searchsorted(ordered, ordered, right=True) / len(ordered)
    below = torch.searchsorted(ordered, ordered) / len(ordered)
    return float(torch.maximum(law - above, below - law).max()) * math.sqrt(len(ordered))


def _check_draws() -> None:
    torch.manual_seed(1)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        drawn = torch.empty(DRAWS, dtype=dtype, device="chip").exponential_(2.0)
        assert (drawn > 0).all() and drawn.isfinite().all()
        assert _distance(drawn, lambda x: 1 - torch.exp(-2 * x)) < 2.6
    empty = torch.empty(DRAWS, device="chip")
    torch.manual_seed(7)
    first = empty.exponential_().clone()
    torch.manual_seed(7)
    assert torch.equal(first, empty.exponential_()) and not torch.equal(first, empty.exponential_())
    assert _distance(empty.cauchy_(1, 2), lambda x: torch.atan((x - 1) / 2) / math.pi + 0.5) < 2.6
    assert _distance(empty.log_normal_(0.5, 0.25).log(), lambda x: torch.special.ndtr((x - 0.5) / 0.25)) < 2.6
    trials = empty.geometric_(0.25)
    assert trials.min() == 1 and abs(float(trials.mean()) - 4) < 0.12


def _check_multinomial() -> None:
    torch.manual_seed(3)
    weights = torch.tensor([[1.0, 0, 3, 4], [0, 2, 2, 0]], device="chip")
    drawn = weights.multinomial(20_000, replacement=True)
    shares = torch.stack([torch.bincount(row, minlength=4) for row in drawn.cpu()]) / 20_000
    expected = weights.cpu() / weights.cpu().sum(-1, keepdim=True)
    assert (shares - expected).abs().max() < 0.02 and (shares[expected == 0] == 0).all()
    order = torch.ones(6, device="chip").multinomial(6)
    assert order.cpu().sort().values.tolist() == list(range(6))
    for wrong, text in (([-1.0, 2], "either `inf`, `nan` or element < 0"), ([0.0, 0], "invalid multinomial")):
        try:
            torch.tensor(wrong, device="chip").multinomial(1)
        except RuntimeError as error:
            assert text in str(error)
        else:
            raise AssertionError(f"multinomial accepted {wrong}")


def _check_others() -> None:
    counted = torch.tensor([3, 0, 3, 1])
    _same(counted.to("chip").bincount(minlength=6), counted.bincount(minlength=6), "bincount")
    x = torch.arange(12.0).view(3, 4)
    index = torch.tensor([2, 0])
    _same(
        x.to("chip").index_fill_(1, index.to("chip"), -1), x.clone().index_fill_(1, index, -1), "index_fill_"
    )
    values = torch.tensor([0.0, -1e30, 3, math.inf, -math.inf, math.nan])
    found = torch.logaddexp(values.to("chip"), values.flip(0).to("chip").roll(1))
    torch.testing.assert_close(found.cpu(), torch.logaddexp(values, values.flip(0).roll(1)), equal_nan=True)
    probabilities = torch.full((20_000, 3), 1.0 / 3, device="chip")  # as vLLM draws tokens
    tokens = probabilities.div_(torch.empty_like(probabilities).exponential_()).argmax(-1)
    assert (torch.bincount(tokens.cpu()) / 20_000 - 1 / 3).abs().max() < 0.02
