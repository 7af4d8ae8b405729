"""Code compiled for the CPU on the chip: operators that stay on the chip, and ways to call it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.compile_on_each import on_each


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# ---- Operators


def test_random_numbers_are_those_of_compiled_cpu() -> None:
    def run(device: str) -> Any:
        @torch.compile
        def function(x: Tensor) -> tuple[Tensor, ...]:
            made = (torch.randn(4, device=x.device), torch.randint(0, 10, (4,), device=x.device))
            drawn = (torch.rand_like(x), torch.bernoulli(x / 2), torch.randperm(6, device=x.device))
            return *made, *drawn, torch.nn.functional.dropout(x), torch.empty_like(x).normal_()

        x = torch.ones(4).to(device)
        return function(x), function(x)

    first, second = on_each(run)
    assert first != second


def test_attention_products_and_checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    def run(device: str) -> Any:
        def attend(x: Tensor) -> Tensor:
            heads = x.view(2, 16, 4, 8).transpose(1, 2)
            out = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
            return torch.nn.functional.dropout(out)

        @torch.compile(fullgraph=True)
        def function(x: Tensor, row: Tensor, column: Tensor) -> Tensor:
            products = (row @ column, torch.addmm(column[0], row, column), torch.bmm(row[None], column[None]))
            attended = checkpoint(attend, x, use_reentrant=False)
            return attended.square().sum() + sum(product.sum() for product in products)

        shapes = ((2, 16, 32), (1, 7), (7, 5))
        inputs = [torch.randn(shape).to(device).requires_grad_() for shape in shapes]
        torch.manual_seed(1)
        loss = function(*inputs)
        loss.backward()
        return loss, [tensor.grad for tensor in inputs]

    on_each(run)


@pytest.mark.full
def test_autocast_follows_the_chips_lists() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)).chip()
    x = torch.randn(4, 8).chip()

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("chip", torch.bfloat16):
            return model[0](x), model(x).softmax(-1)

    for compiled, eager in zip(torch.compile(step)(x), step(x), strict=True):
        assert compiled.dtype is eager.dtype
        torch.testing.assert_close(compiled, eager)


def test_operators_without_a_cpu_kernel_stay_on_the_chip() -> None:
    seen = []

    def scale(x: Tensor, factor: float) -> Tensor:
        seen.append(x.device.type)
        return x * factor

    def increment(x: Tensor) -> None:
        seen.append(x.device.type)
        x.add_(1)

    with torch.library._scoped_library("isthmus_test", "FRAGMENT") as library:
        library.define("scale(Tensor x, float factor) -> Tensor")
        library.define("increment(Tensor(a!) x) -> ()")
        library.impl("scale", scale, "PrivateUse1")
        library.impl("increment", increment, "PrivateUse1")
        library._register_fake("scale", lambda x, factor: torch.empty_like(x))
        library._register_fake("increment", lambda x: None)

        @torch.compile(fullgraph=True)
        def function(x: Tensor) -> Tensor:
            torch.ops.isthmus_test.increment(x)
            return torch.ops.isthmus_test.scale(x + 1, 3.0) * 2

        x = torch.ones(3, device="chip")
        assert function(x).tolist() == [18, 18, 18]
        assert x.tolist() == [2, 2, 2]
    assert set(seen) == {"chip"}


def test_dtypes_that_the_cpu_lacks() -> None:
    def function(x: Tensor, a: Tensor) -> tuple[Tensor, ...]:
        mean, invstd = torch.batch_norm_stats(a, 1e-5)
        return torch.histc(x, bins=8, min=0, max=7), torch.mm(a, a, out_dtype=torch.float32), mean, invstd

    x = torch.randint(0, 8, (100,), dtype=torch.int32).chip()
    a = torch.randn(4, 4, dtype=torch.bfloat16).chip()
    for compiled, eager in zip(torch.compile(function)(x, a), function(x, a), strict=True):
        assert torch.equal(compiled, eager)
        assert compiled.dtype is eager.dtype


# ---- Ways to call it


def test_optimizer_step() -> None:
    def run(device: str) -> Any:
        parameters = [torch.nn.Parameter(torch.randn(4, 4).to(device)) for _ in range(3)]
        step = torch.compile(torch.optim.AdamW(parameters, lr=0.1, foreach=True).step)
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = parameter.detach() / 2
            step()
        return parameters

    on_each(run)


@pytest.mark.parametrize(
    "options", [{"mode": "reduce-overhead"}, {"mode": "max-autotune"}, {"backend": "inductor"}]
)
def test_modes(options: dict[str, str]) -> None:
    def run(device: str) -> Any:
        x = torch.arange(-4.0, 4.0).to(device).requires_grad_()
        y = torch.compile(lambda x: torch.relu(x).square(), **options)(x)
        y.sum().backward()
        return y, x.grad

    on_each(run)


@pytest.mark.full
def test_inference_mode_and_stances() -> None:
    def run(device: str) -> Any:
        function = torch.compile(lambda x: x.sin() + 1)
        x = torch.ones(3).to(device)
        with torch.inference_mode():
            inferred = function(x)
        with torch.compiler.set_stance("force_eager"):
            eager = function(x)
        result = function(x)
        with torch.compiler.set_stance("fail_on_recompile"):
            return inferred, inferred.is_inference(), eager, result, function(x)

    on_each(run)
