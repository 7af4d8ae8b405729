"""Formulas of the decomposition route against PyTorch's own CPU kernels, forward and backward."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.children import output

ROOT = Path(__file__).parents[2]
COMPARE = """
import json, warnings
from tests.helpers.decompositions import differences

warnings.simplefilter("ignore")
print(json.dumps(differences(*CALLS)))
"""
# Formulas that stay different, and why.
KNOWN = {
    "aten::elu_backward": "the gradient at NaN, where the CPU's vector code differs from its scalar code",
    "aten::hardswish_backward": "the gradient at NaN, where the CPU's vector code differs from its scalar code",
    "aten::hardtanh_backward": "the gradient at NaN, where the CPU's vector code differs from its scalar code",
    "aten::hardsigmoid_backward": "the kernel rounds 1/6 to float32",
    "aten::logit_backward": "the sign of an infinite slope at -0.0, where the CPU's vector code differs",
    "aten::soft_margin_loss_backward": "the kernel overflows to NaN, the formula does not",
    "aten::pixel_unshuffle": "the kernel's shape of an empty result is wrong",
    "aten::linalg_cross": "the kernel rounds products of halves",
    "aten::upsample_trilinear3d": "the kernel rounds halves between dimensions",
}


def compared(*calls: object) -> tuple[int, dict[str, str]]:
    code = COMPARE.replace("CALLS", repr(calls))
    count, found = json.loads(output(code, ISTHMUS_DRIVER="numpy", PYTHONPATH=str(ROOT)))
    return count, {name: text for name, text in found.items() if name not in KNOWN}


@pytest.mark.parametrize(("calls", "least"), [("special_calls", 40), ("loss_calls", 20), ("shape_calls", 20)])
def test_at_special_values_labels_and_sizes(calls: str, least: int) -> None:
    count, found = compared(calls, "float32")
    assert count >= least
    assert found == {}


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "int64", "bool"])
def test_on_the_samples_of_every_operator(dtype: str) -> None:
    count, found = compared("op_db_calls", dtype, 12)
    assert count >= 30
    assert found == {}


@pytest.mark.full
@pytest.mark.parametrize("calls", ["special_calls", "loss_calls", "shape_calls"])
def test_at_them_in_float64(calls: str) -> None:
    assert compared(calls, "float64")[1] == {}


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
