"""Formulas of the decomposition route against PyTorch's own CPU kernels, forward and backward."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

from tests.helpers import decompositions
from tests.helpers.children import output
from tests.helpers.decompositions import Compared, run
from tools.repository import ROOT

COMPARE = """
import json, warnings
from tests.helpers.decompositions import differences

warnings.simplefilter("ignore")
print(json.dumps(differences(*CALLS)))
"""
NUMBERS = r"\[(-?[\d.e-]+(, )?)+\]"
AT_NAN = rf".*: {NUMBERS}, expected \[nan\]"
HALVES = rf"bfloat16.*: {NUMBERS}, expected {NUMBERS}"
# Formulas that stay different: a pattern of each difference, and why.
KNOWN = {
    "aten::addbmm_": (
        r"\w+\[1?\], .*: RuntimeError: output with shape \[1?\] doesn't match the broadcast shape .*",
        "the kernel gives a tensor of one element another shape",
    ),
    "aten::elu_backward": (AT_NAN, "the CPU's vector code differs from its scalar code"),
    "aten::hardswish_backward": (AT_NAN, "the CPU's vector code differs from its scalar code"),
    "aten::hardtanh_backward": (
        r".*: \[1\.0\], expected \[0\.0\]",
        "the gradient at NaN, where the CPU's vector code differs from its scalar code",
    ),
    "aten::hardsigmoid_backward": (
        r"float64.*: \[(0\.16666666666666666(, )?)+\], expected \[(0\.1666666716337204(, )?)+\]",
        "the kernel rounds 1/6 to float32",
    ),
    "aten::logit_backward": (
        r".*: (\[-inf\], expected \[inf\]|\[0\.0(, -inf)?\], expected \[nan(, inf)?\])",
        "the sign of an infinite slope at -0.0, and the slope at NaN, where the CPU's vector code differs",
    ),
    "aten::soft_margin_loss_backward": (
        rf".*: {NUMBERS}, expected \[(nan(, )?)+\]",
        "the kernel overflows to NaN, the formula does not",
    ),
    "aten::pixel_unshuffle": (
        r"\w+\[(0, 1, 4, 4|1, 1, 0, 4)\], 2: torch\.\w+ \[[\d, ]+\], expected torch\.\w+ \[[\d, ]+\]",
        "the kernel's shape of an empty result is wrong",
    ),
    "aten::linalg_cross": (HALVES, "the kernel rounds products of halves"),
    "aten::upsample_trilinear3d": (HALVES, "the kernel rounds halves between dimensions"),
}


def check(least: int, known: str, *calls: object) -> None:
    """Compare in a process of its own: only known differences, among them those of some operators."""
    code = COMPARE.replace("CALLS", repr(calls))
    count, found = json.loads(output(code, ISTHMUS_DRIVER="numpy", PYTHONPATH=str(ROOT)))
    assert count >= least
    assert unknown(found) == {}
    assert {f"aten::{name}" for name in known.split()} <= found.keys(), "no longer different: not known"


def unknown(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the differences that no pattern describes."""
    left = {
        name: [text for text in texts if name not in KNOWN or not re.fullmatch(KNOWN[name][0], text)]
        for name, texts in found.items()
    }
    return {name: texts for name, texts in left.items() if texts}


@pytest.mark.parametrize(
    ("calls", "least", "known"),
    [
        ("special_calls", 45, "hardtanh_backward"),
        ("loss_calls", 20, "soft_margin_loss_backward"),
        ("shape_calls", 20, "pixel_unshuffle"),
    ],
)
def test_at_special_values_labels_and_sizes(calls: str, least: int, known: str) -> None:
    check(least, known, calls, "float32")


@pytest.mark.full
@pytest.mark.parametrize(
    ("dtype", "known"),
    [
        ("float64", "addbmm_ hardsigmoid_backward"),
        ("float32", "addbmm_"),
        ("bfloat16", "addbmm_ linalg_cross upsample_trilinear3d"),
        ("int64", "addbmm_"),
        ("bool", ""),
    ],
)
def test_on_the_samples_of_every_operator(dtype: str, known: str) -> None:
    check(30, known, "op_db_calls", dtype, 12)


@pytest.mark.full
@pytest.mark.parametrize(
    ("calls", "known"),
    [
        ("special_calls", "elu_backward hardsigmoid_backward hardswish_backward hardtanh_backward"),
        ("loss_calls", ""),
        ("shape_calls", "pixel_unshuffle"),
    ],
)
def test_at_them_in_float64(calls: str, known: str) -> None:
    check(20, known, calls, "float64")


def test_a_further_difference_of_a_known_operator_is_unknown() -> None:
    at_nan = "float32[18], float32[18], -1.0, 1.0: [1.0], expected [0.0]"
    wrong = "float32[18], float32[18], -1.0, 1.0: [1.0, 1.0], expected [0.0, 0.0]"
    assert unknown({"aten::hardtanh_backward": [at_nan]}) == {}
    assert unknown({"aten::hardtanh_backward": [at_nan, wrong]}) == {"aten::hardtanh_backward": [wrong]}
    assert unknown({"aten::add": [at_nan]}) == {"aten::add": [at_nan]}


NEG = torch.ops.aten.neg


def accept(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def fail(*values: Any) -> Any:
    raise KeyError(values)


@pytest.mark.parametrize(
    ("formula", "call", "count", "difference"),
    [
        (NEG, lambda: NEG(torch.ones(2, dtype=torch.complex64)), 1, ""),
        (accept, lambda: NEG(torch.full((1,), 1 + 2j)), 1, "complex64[1]: [1.0, 2.0], expected [-1.0, -2.0]"),
        (accept, lambda: NEG(torch.full((1,), 1 + 2j).conj()), 1, "[1.0, -2.0], expected [-1.0, 2.0]"),
        (accept, lambda: NEG(torch.full((1,), 3.0).to_sparse()), 1, "float32[1]: [3.0], expected [-3.0]"),
        (accept, lambda: NEG(torch.full((1, 1), 3.0).to_sparse_csr()), 1, "[3.0], expected [-3.0]"),
        (accept, lambda: NEG(torch.ones(1, dtype=torch.bool)), 1, "bool[1]: accepted, although the kernel"),
        (fail, lambda: NEG(torch.ones(1, dtype=torch.bool)), 1, ""),
        (fail, lambda: NEG(torch.ones(1)), 1, "float32[1]: KeyError"),
        (lambda _: NotImplemented, lambda: NEG(torch.ones(1)), 0, ""),
        (accept, lambda: torch.ones(2).add_(torch.ones(3)), 0, ""),
    ],
)
def test_what_is_compared_and_counted(formula: Any, call: Any, count: int, difference: str) -> None:
    compared = Compared({"aten::neg": formula})
    run([call], compared)
    assert compared.calls.total() == count
    (found,) = compared.differences.get("aten::neg", [""])
    assert difference in found and bool(difference) == bool(found)


@pytest.mark.parametrize(
    "error",
    [TypeError, KeyError, AttributeError, AssertionError, ZeroDivisionError],
    ids=lambda e: e.__name__,
)
def test_faults_of_the_calls_are_raised(error: type[Exception]) -> None:
    def call() -> None:
        raise error

    with pytest.raises(error):
        run([call], Compared({}))


def test_faults_of_the_comparison_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def call() -> torch.Tensor:
        return NEG(torch.ones(1))

    for part in ("_describe", "_difference"):
        with monkeypatch.context() as patch:
            patch.setattr(decompositions, part, fail)
            with pytest.raises(decompositions.HarnessError, match="aten::neg"):
                run([call], Compared({"aten::neg": NEG}))


LOSSES = """
import json, torch
import torch.nn.functional as F

x = torch.tensor([[0.1, 0.2, 0.4, 0.8], [0.5, -0.1, 0.3, 2.0]])
found = []
for labels in ([0, -1, -1, -1], [3, 0, -1, 1], [-1, 0, 1, 2], [2, 2, 0, 3], [1, 2, 3, 0]):
    for reduction in ("none", "mean", "sum"):
        y = torch.tensor([labels, labels[::-1]])
        results = [
            [F.multilabel_margin_loss(x.to(d), y.to(d), reduction=reduction).cpu(),
             F.multilabel_margin_loss(x[0].to(d), y[0].to(d), reduction=reduction).cpu()]
            for d in ("cpu", "chip")
        ]
        found.append(all(a.shape == b.shape and torch.allclose(a, b) for a, b in zip(*results)))
print(all(found), len(found))
"""


def test_the_labels_of_a_margin_loss_end_at_minus_one() -> None:
    assert output(LOSSES, ISTHMUS_DRIVER="numpy").strip() == "True 15"


CASTS = """
import torch
from isthmus.chip.registration import python_decompositions

formulas = python_decompositions()
found = []
for name, *arguments in (("logit_",), ("logit_", 0.2), ("ldexp_", torch.ones(3)), ("__ior__.Scalar", 2)):
    for dtype in (torch.int64, torch.uint8, torch.bool):
        tensor = torch.ones(3, dtype=dtype)
        try:
            found.append(formulas[f"aten::{name}"](tensor, *arguments).tolist())
        except RuntimeError as error:
            found.append("cast" if "can't be cast to the desired output type" in str(error) else str(error))
            assert tensor.tolist() == [1, 1, 1]
print(found)
x = torch.ones(3, dtype=torch.int64, device="chip")
for eps in (None, 0.2):
    try:
        print(x.logit_(eps))
    except RuntimeError as error:
        print(error)
print(x.tolist(), x.double().logit_(0.2).tolist())
"""


def test_results_in_place_are_refused_in_a_dtype_that_cannot_hold_them() -> None:
    refused = "result type torch.float32 can't be cast to the desired output type torch.int64"
    expected = [*["cast"] * 9, *[[3] * 3] * 2, "cast"]
    assert output(CASTS, ISTHMUS_DRIVER="numpy").splitlines() == [
        str(expected),
        refused,
        refused,
        f"[1, 1, 1] {torch.ones(3, dtype=torch.float64).logit_(0.2).tolist()}",
    ]
