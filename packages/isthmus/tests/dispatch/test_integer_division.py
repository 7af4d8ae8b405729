"""Division of the smallest integer by -1, which wraps; CPU's kernels trap."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

from tests.helpers.children import output
from tests.helpers.graphs import capture

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
DIVISIONS: dict[str, Callable[..., torch.Tensor]] = {
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "//": lambda a, b: a // b,
    "in place": lambda a, b: a.clone().div_(b, rounding_mode="floor"),
    "floor_divide_": lambda a, b: a.clone().floor_divide_(b),
    "out": lambda a, b: torch.floor_divide(a, b, out=torch.empty(0, dtype=a.dtype, device=a.device)),
}
REMAINDERS: dict[str, Callable[..., torch.Tensor]] = {
    "%": lambda a, b: a % b,
    "fmod": torch.fmod,
    "remainder_": lambda a, b: a.clone().remainder_(b),
    "fmod_": lambda a, b: a.clone().fmod_(b),
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", [*DIVISIONS, *REMAINDERS])
def test_the_smallest_integer_divided_by_minus_one_wraps(name, dtype):
    smallest = torch.iinfo(dtype).min
    values = torch.tensor([smallest, smallest + 1, 7, smallest], dtype=dtype, device="chip")
    divisors = torch.tensor([-1, -1, -2, 3], dtype=dtype, device="chip")
    call = (DIVISIONS | REMAINDERS)[name]
    ordinary = call(values[1:].cpu(), divisors[1:].cpu()).tolist()
    expected = smallest if name in DIVISIONS else 0
    for divisor in (divisors, torch.stack([divisors, divisors], 1)[:, 0]):
        result = call(values, divisor)
        assert result.dtype == dtype and result.tolist() == [expected, *ordinary]
    by_number = call(values, -1)
    assert by_number.dtype == dtype and by_number[0].item() == expected
    assert call(values[:1], torch.tensor(-1, dtype=dtype, device="chip"))[0].item() == expected
    assert call(values[:1].expand(2), divisors[:1]).tolist() == [expected] * 2


def test_a_number_is_divided():
    smallest = torch.tensor([-1, 2], dtype=torch.int32, device="chip")
    assert (-(2**31) // smallest).tolist() == [-(2**31), -(2**30)]
    assert torch.remainder(-(2**31), smallest).tolist() == [0, 0]


@pytest.mark.host("other chips divide by zero as their kernels do")
def test_true_division_and_zero_are_as_on_the_cpu():
    smallest, one = torch.tensor([-(2**31)], dtype=torch.int32), torch.tensor([-1], dtype=torch.int32)
    assert torch.div(smallest.to("chip"), one.to("chip")).tolist() == [2.0**31]
    assert torch.div(smallest.to("chip"), one.to("chip"), rounding_mode=None).tolist() == [2.0**31]
    for call in (lambda a: a // 0, lambda a: a % 0, lambda a: torch.fmod(a, 0)):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            call(smallest.to("chip"))


def test_the_least_common_multiple_wraps():
    values = torch.tensor([-(2**31), -(2**31), 6], dtype=torch.int32, device="chip")
    others = torch.tensor([2**31 - 1, 3, 4], dtype=torch.int32, device="chip")
    assert torch.lcm(values, others).tolist() == [-(2**31), -(2**31), 12]


def test_a_replay_divides_new_values():
    x = torch.tensor([8, 9], dtype=torch.int64, device="chip")
    y = torch.tensor([2, 3], dtype=torch.int64, device="chip")
    graph, z = capture(lambda: x // y)
    x.fill_(-(2**63))
    y.copy_(torch.tensor([-1, 2]))
    graph.replay()
    assert z.tolist() == [-(2**63), -(2**62)]
    y.fill_(1)
    graph.replay()
    assert z.tolist() == [-(2**63)] * 2


def test_kernels_of_libraries_wrap():
    code = """
    import json, torch
    a = torch.tensor([-(2**31), 7], dtype=torch.int32).to("chip")
    b = torch.tensor([-1, -2], dtype=torch.int32).to("chip")
    results = [torch.div(a, b, rounding_mode=mode) for mode in ("trunc", "floor")]
    print(json.dumps([each.tolist() for each in (*results, a // b, a % b, torch.fmod(a, b))]))
    """
    smallest = -(2**31)
    expected = [[smallest, -3], [smallest, -4], [smallest, -4], [0, -1], [0, 1]]
    assert json.loads(output(code, ISTHMUS_DRIVER="numpy")) == expected
