"""Rows that draw random numbers: distribution, the same for the same seed and offset, another for another."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.runtime import opapi

COUNT = 20000


def memory(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(COUNT, dtype=dtype)


def near(value: torch.Tensor, mean: float, spread: float) -> None:
    """Check mean and standard deviation within five standard errors of the mean."""
    assert abs(value.double().mean() - mean) < 5 * spread / COUNT**0.5
    assert abs(value.double().std() / spread - 1) < 0.05


def draw(name: str, before: list[Any], out: torch.Tensor, seed: tuple[Any, ...]) -> torch.Tensor:
    """Run an in-place row, or one whose output is last."""
    inplace = name.startswith("Inplace") or name == "SimThreadExponential"
    opapi.call(name, *([out, *before, *seed] if inplace else [*before, *seed, out]))
    return out


ONES, TWOS = torch.ones(COUNT), torch.full((COUNT,), 2.0)
# Name: arguments before the seed, dtype, mean, standard deviation.
DISTRIBUTIONS: dict[str, tuple[list[Any], torch.dtype, float, float]] = {
    "InplaceNormal": ([1.0, 2.0], torch.float32, 1, 2),
    "InplaceNormalTensor": ([1.0, 2.0], torch.float32, 1, 2),
    "NormalFloatFloat": ([1.0, 2.0], torch.float32, 1, 2),
    "NormalFloatTensor": ([1.0, TWOS], torch.float32, 1, 2),
    "NormalTensorFloat": ([ONES, 2.0], torch.float32, 1, 2),
    "NormalTensorTensor": ([ONES, TWOS], torch.float32, 1, 2),
    "InplaceUniform": ([1.0, 4.0], torch.float32, 2.5, 3 / 12**0.5),
    "InplaceUniformTensor": ([1.0, 4.0], torch.float32, 2.5, 3 / 12**0.5),
    "InplaceBernoulli": ([0.25], torch.float32, 0.25, 0.1875**0.5),
    "InplaceBernoulliTensor": ([torch.full((COUNT,), 0.25)], torch.float32, 0.25, 0.1875**0.5),
    "InplaceRandom": ([3, 13], torch.int64, 7.5, (99 / 12) ** 0.5),
    "InplaceRandomTensor": ([3, 13], torch.int64, 7.5, (99 / 12) ** 0.5),
    "InplaceRandomWithoutFromTo": ([], torch.uint8, 127.5, 256 / 12**0.5),
    "InplaceRandomWithoutFromToTensor": ([], torch.uint8, 127.5, 256 / 12**0.5),
    "SimThreadExponential": ([COUNT, 0.5], torch.float32, 2, 2),
    "Multinomial": ([torch.tensor([1.0, 3.0]), COUNT, True], torch.int64, 0.75, 0.1875**0.5),
    "MultinomialTensor": ([torch.tensor([1.0, 3.0]), COUNT, True], torch.int64, 0.75, 0.1875**0.5),
}


def seeds(name: str) -> Callable[[int, int], tuple[Any, ...]]:
    """Return what makes the row's seed arguments: numbers, or tensors and an offset beside them."""
    if any(kind == "tensor" and parameter == "seed" for kind, parameter in opapi.ROWS[name].parameters):
        return lambda seed, offset: (torch.tensor([seed]), torch.tensor([offset]), 4)
    return lambda seed, offset: (seed, offset)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution(name: str) -> None:
    before, dtype, mean, spread = DISTRIBUTIONS[name]
    make = seeds(name)
    first, same, other, later = (
        draw(name, before, memory(dtype), make(*pair)) for pair in ((5, 0), (5, 0), (6, 0), (5, 8))
    )
    near(first, mean, spread)
    assert torch.equal(first, same)
    assert not torch.equal(first, other) and not torch.equal(first, later)


GRAPH_ROWS = ("InplaceNormal", "InplaceUniform", "InplaceRandom", "InplaceRandomWithoutFromTo", "Multinomial")


@pytest.mark.parametrize("name", GRAPH_ROWS)
def test_a_graph_draws_the_numbers_of_eager_calls(name: str) -> None:
    # Under capture torch_npu passes seed and offset of the generator as tensors, and the graph's offset as a number.
    before, dtype, _, _ = DISTRIBUTIONS[name]
    eager = draw(name, before, memory(dtype), (5, 12))
    graph = (torch.tensor([5]), torch.tensor([8]), 4)
    assert torch.equal(draw(f"{name}Tensor", before, memory(dtype), graph), eager)


def test_randperm() -> None:
    out = torch.zeros(COUNT, dtype=torch.int64)
    opapi.call("Randperm", COUNT, 5, 0, out)
    assert torch.equal(out.sort().values, torch.arange(COUNT)) and not torch.equal(out, torch.arange(COUNT))


@pytest.mark.parametrize("name", ["RReluWithNoise", "InplaceRReluWithNoise"])
def test_rrelu(name: str) -> None:
    x, noise, out = torch.randn(COUNT), torch.zeros(COUNT), torch.zeros(COUNT)
    given = x.clone()
    opapi.call(name, given, noise, 0.1, 0.3, True, 5, 0, *([] if "Inplace" in name else [out]))
    result = given if "Inplace" in name else out
    slopes = (result / x)[x < 0]
    assert torch.equal(result[x > 0], x[x > 0])
    assert 0.099 < slopes.min() < 0.11 and 0.29 < slopes.max() < 0.301
    torch.testing.assert_close(noise[x < 0], slopes)


def test_every_random_row_has_a_test() -> None:
    rows = {name for name, row in opapi.ROWS.items() if "generator(" in row.program}
    others = {"Randperm", "RReluWithNoise", "InplaceRReluWithNoise"}
    dropout = {"DropoutGenMask", "DropoutGenMaskV2", "DropoutGenMaskV2Tensor", "DropoutV3"}
    assert rows == {*DISTRIBUTIONS, *others, *dropout}
