"""The implementation used by a call, forcing one, and messages to the user."""

import logging

import pytest
import torch

from isthmus import ops
from isthmus.ops.registration import operators
from tests.helpers.children import output

X, W = torch.randn(3, 8), torch.ones(8)


def test_which_names_the_implementation_and_computes_nothing():
    choice = ops.which("add_rms_norm", X, X, W)
    assert (choice.operator, choice.implementation, choice.refused) == ("add_rms_norm", "cpu", {})
    assert str(choice) == "add_rms_norm: cpu (the first that supports cpu)"


def test_a_refusal_is_named_and_logged_once(caplog):
    tensor = torch.randn(3, 8).to(torch.float8_e5m2)
    choice = ops.which("rms_norm", tensor)
    assert choice.implementation == "composite"
    assert choice.refused["cpu"] == "no kernel for torch.float8_e5m2"
    with caplog.at_level(logging.WARNING, logger="isthmus.ops"):
        ops.rms_norm(tensor)
        ops.rms_norm(tensor)
    assert caplog.messages == ["rms_norm falls back from cpu to composite: no kernel for torch.float8_e5m2"]


def test_use_is_for_the_backward_too_and_is_undone():
    with ops.use("rms_norm", "composite"):
        assert ops.which("rms_norm", X, W).reason == "forced"
        assert operators()["rms_norm_backward"].forced == "composite"
        with ops.use("rms_norm", None):
            assert ops.which("rms_norm", X, W).implementation == "cpu"
        assert operators()["rms_norm"].forced == "composite"
    assert operators()["rms_norm"].forced == operators()["rms_norm_backward"].forced == ""


def test_use_without_with_is_permanent():
    ops.use("rms_norm", "composite")
    try:
        assert ops.which("rms_norm", X, W).implementation == "composite"
    finally:
        ops.use("rms_norm", None)


def test_a_forced_implementation_that_does_not_serve_the_call_raises():
    tensor = X.to(torch.float8_e5m2)
    with (
        ops.use("rms_norm", "cpu"),
        pytest.raises(ValueError, match=r"does not support .*no kernel for torch.float8"),
    ):
        ops.rms_norm(tensor)


@pytest.mark.parametrize(
    ("name", "implementation", "message"),
    [
        ("rms_nrm", "cpu", "unknown operator 'rms_nrm'; expected one of "),
        ("rms_norm", "cuda", "expected one of cpu, (triton, )?composite"),
    ],
)
def test_use_of_an_unknown_name(name, implementation, message):
    with pytest.raises(ValueError, match=message):
        ops.use(name, implementation)


def test_which_of_an_unknown_function():
    with pytest.raises(ValueError, match=r"isthmus\.ops: unknown function 'rms_nrm'; expected one of "):
        ops.which("rms_nrm", X)


def test_every_operator_has_a_composite_and_is_in_the_opset():
    from isthmus import opset

    for name, implementations in ops.implementations().items():
        assert implementations[-1] == "composite"
        assert f"isthmus::{name}" in opset.operators()
    assert {name for name in opset.operators() if name.startswith("isthmus::")} == {
        f"isthmus::{name}" for name in ops.implementations()
    }


def test_kernels_of_the_chip_come_first_and_can_be_passed_over():
    said = output(
        """
        import torch
        from isthmus import ops
        x, w = torch.randn(4, 8, device="chip"), torch.rand(8, device="chip")
        print(ops.which("rms_norm", x, w).implementation, torch.chip.routes()["isthmus::rms_norm"][0])
        y = ops.rms_norm(x, w)
        with ops.use("rms_norm", "composite"):
            print(ops.which("rms_norm", x, w).implementation, torch.chip.routes()["isthmus::rms_norm"][0])
            torch.testing.assert_close(ops.rms_norm(x, w), y)
        torch.testing.assert_close(y.cpu(), ops.rms_norm(x.cpu(), w.cpu()))
        """,
        ISTHMUS_DRIVER="numpy",
    )
    assert said.splitlines() == ["kernel kernel", "composite decomposition"]


@pytest.mark.full
def test_without_kernels_for_this_processor_the_composite_serves():
    said = output(
        """
        import torch
        from isthmus import ops
        print(ops.which("rms_norm", torch.ones(2, 8)))
        """,
        ATEN_CPU_CAPABILITY="default",
    )
    built_for_less = "rms_norm: cpu (the first that supports cpu)"
    assert said == built_for_less or ("composite" in said and "this process has DEFAULT" in said)
