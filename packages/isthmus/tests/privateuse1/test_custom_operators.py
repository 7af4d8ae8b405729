"""Operators that others register for the chip, and their gradients, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.privateuse1.inventory import covers

library = torch.library.Library("isthmus_test", "FRAGMENT")
library.define("custom_abs(Tensor x) -> Tensor")
library.define("returns_self(Tensor(a) x) -> Tensor(a)")
library.define("aliasing(Tensor(a) x) -> Tensor(a)")


class _ReturnsSelf(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient * 0.5


class _Aliasing(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return gradient * 0.5


library.impl("custom_abs", lambda x: torch.where(x < 0, -x, x), "PrivateUse1")
library.impl("returns_self", _ReturnsSelf.apply, "CompositeImplicitAutograd")
library.impl("aliasing", _Aliasing.apply, "CompositeImplicitAutograd")

Operator = Callable[[torch.Tensor], torch.Tensor]
BOTH = [torch.ops.isthmus_test.returns_self, torch.ops.isthmus_test.aliasing]


@covers("ops", "test_custom_abs")
def test_an_operator_for_the_chip():
    x = torch.randn(2, 3, device="chip")
    y = torch.ops.isthmus_test.custom_abs(x)
    assert y.device == x.device
    assert torch.equal(y.cpu(), x.cpu().abs())


@covers("ops", "test_custom_autograd_fn_returns_self_basic", "test_custom_autograd_fn_aliasing_basic")
@covers("ops", "test_custom_autograd_fn_returns_self_no_grad", "test_custom_autograd_fn_aliasing_no_grad")
@pytest.mark.parametrize("operator", BOTH, ids=str)
def test_gradients_of_autograd_functions(operator: Operator):
    x = torch.randn(4, device="chip", requires_grad=True)
    y = operator(x)
    assert torch.equal(y.detach().cpu(), x.detach().cpu())
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.5] * 4
    assert not operator(x.detach()).requires_grad


@covers("ops", "test_compile_autograd_function_returns_self", "test_compile_autograd_function_aliasing")
@covers("open_device_registration", "test_compile_autograd_function_returns_self")
@covers("open_device_registration", "test_compile_autograd_function_aliasing")
@pytest.mark.parametrize("operator", BOTH, ids=str)
def test_autograd_functions_compile(operator: Operator):
    x = torch.randn(4, device="chip", requires_grad=True)
    y = torch.compile(operator, backend="aot_eager")(x)
    assert torch.equal(y.detach().cpu(), x.detach().cpu())
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.5] * 4


library.define("doubles(Tensor x) -> Tensor")
library.define("doubles_inside(Tensor x) -> Tensor")


class _Doubles(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


library.impl("doubles", torch.empty_like, "Meta")
library.impl("doubles", lambda x: x * 2, "PrivateUse1")
library.impl("doubles_inside", torch.empty_like, "Meta")
library.impl("doubles_inside", _Doubles.apply, "PrivateUse1")
torch.library.register_autograd("isthmus_test::doubles", lambda context, gradient: gradient * 2, lib=library)


def test_opcheck_tests_operators_on_the_chip():
    x = torch.randn(3, device="chip", requires_grad=True)
    for operator in (torch.ops.isthmus_test.doubles.default, torch.ops.aten.sin.default):
        assert set(torch.library.opcheck(operator, (x,)).values()) == {"SUCCESS"}


@pytest.mark.filterwarnings("ignore:isthmus_test")
def test_opcheck_finds_autograd_in_a_kernel_of_the_chip():
    found = torch.library.opcheck(
        torch.ops.isthmus_test.doubles_inside.default,
        (torch.randn(3, device="chip", requires_grad=True),),
        test_utils="test_autograd_registration",
        raise_exception=False,
    )
    assert "register its autograd at Autograd, not at PrivateUse1" in str(found["test_autograd_registration"])
