"""PyTorch's own operator samples on the chip against the CPU: a fast subset, and the judge itself.

All of them: `make opinfo`.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from tests.helpers.children import output
from tools.opinfo.compare import Outcome, outcome_difference, tensor_difference, value_difference
from tools.opinfo.data import expected_failure, expected_failures, fast_subset
from tools.opinfo.layouts import LayoutEntry, entries
from tools.opinfo.runner import dtypes_of, judge, spaced_evenly
from tools.opinfo.twin import Copier
from tools.repository import ROOT

SAMPLES = 8


@functools.cache
def operators() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.full_name: op for op in op_db}


@pytest.mark.host("its results are the CPU's; `tools.opinfo --forward` judges other drivers")
@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", fast_subset())
def test_operator(name: str) -> None:
    op = operators()[name]
    verdicts = [judge(op, dtype, SAMPLES) for dtype in dtypes_of(op)]
    failures = {
        (verdict.dtype, part): message
        for verdict in verdicts
        for part, message in verdict.failures.items()
        if expected_failure(name, verdict.dtype, part) is None
    }
    assert not failures
    assert any(verdict.runs_on_cpu for verdict in verdicts)


@functools.cache
def layout_entries() -> dict[str, LayoutEntry]:
    return {entry.full_name: entry for entry in entries()}


@pytest.mark.host("its results are the CPU's; other drivers copy, or refuse")
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name",
    ["sum [sparse_coo]", "sum [sparse_csr]", "sin [sparse_csc]", "abs [sparse_bsr]", "neg [sparse_bsc]"]
    + ["mul [jagged]", "nn.functional.linear [jagged]", "add [nested]"],
)
def test_entry_on_a_layout(name: str) -> None:
    verdict = judge(layout_entries()[name], torch.float32, SAMPLES)
    assert not verdict.failures and verdict.runs_on_cpu


def test_parts_of_sparse_tensors_are_compared() -> None:
    sparse = torch.eye(2).to_sparse()
    assert tensor_difference(sparse.to("chip"), sparse) == ""
    assert "differ" in tensor_difference(sparse.to("chip"), torch.eye(2).flip(0).to_sparse())
    unsorted = torch.sparse_coo_tensor(
        sparse.indices(), sparse.values(), (2, 2), device="chip", check_invariants=True
    )
    assert "coalesced" in tensor_difference(unsorted, sparse)


def test_every_expected_failure_names_an_operator() -> None:
    for entry in expected_failures():
        assert any(
            entry.covers(name, dtype, part) for name in operators() for dtype, part in _somewhere(entry)
        )
        assert entry.reason


def _somewhere(entry: Any) -> list[tuple[str, str]]:
    return [((entry.dtypes or ("float32",))[0], (entry.parts or ("forward",))[0])]


# ---- the judge


def chip(values: Any, **options: Any) -> torch.Tensor:
    return torch.tensor(values, device="chip", **options)


def test_a_difference_of_one_bit_is_seen() -> None:
    one = torch.tensor([1.0, 2.0])
    next_up = torch.nextafter(one, torch.tensor(9.0))
    assert tensor_difference(one.to("chip"), one) == ""
    assert "differ" in tensor_difference(next_up.to("chip"), one)
    assert "differ" in tensor_difference(chip([-0.0]), torch.tensor([0.0]))
    assert tensor_difference(chip([float("nan")]), torch.tensor([float("nan")])) == ""
    assert "differ" in tensor_difference(chip([1.0 + 1e-6]), torch.tensor([1.0]))
    assert tensor_difference(chip([1.0 + 1e-6]), torch.tensor([1.0]), "close") == ""
    assert tensor_difference(chip([3.0]), torch.tensor([1.0]), "metadata") == ""


def test_metadata_is_compared() -> None:
    plain = torch.zeros(2, 3)
    assert "stride" in tensor_difference(torch.zeros(3, 2, device="chip").T, plain)
    assert "dtype" in tensor_difference(torch.zeros(2, 3, device="chip", dtype=torch.float64), plain)
    assert "shape" in tensor_difference(torch.zeros(2, 2, device="chip"), plain)
    assert "requires_grad" in tensor_difference(torch.zeros(2, 3, device="chip", requires_grad=True), plain)
    assert "conj" in tensor_difference(chip([1j]).conj(), torch.tensor([1j]))
    assert "not on chip" in value_difference((torch.zeros(1),), (torch.zeros(1),))


def test_exceptions_are_compared_by_type() -> None:
    wrong, other = Outcome(error=RuntimeError("x")), Outcome(error=ValueError("x"))
    assert outcome_difference(wrong, wrong) == ""
    assert "on CPU ValueError" in outcome_difference(wrong, other)
    assert "raised RuntimeError" in outcome_difference(wrong, Outcome(value=1))
    assert "returned where CPU raises" in outcome_difference(Outcome(value=1), wrong)


def test_copies_share_what_the_originals_share() -> None:
    base = torch.arange(6.0, device="chip")
    view, turned = base[1:5:2], torch.complex(base, base).conj()
    copies = Copier("cpu")({"base": base, "rest": [view, turned, base], "device": torch.device("chip:0")})
    assert copies["device"] == torch.device("cpu")
    assert copies["rest"][2] is copies["base"]
    assert copies["rest"][0].stride() == (2,) and copies["rest"][0].storage_offset() == 1
    copies["base"][1] = 7
    assert copies["rest"][0][0] == 7 and base[1] == 1
    assert copies["rest"][1].is_conj() and copies["rest"][1][2] == 2 - 2j


def test_samples_are_spread_evenly() -> None:
    assert [i for i, _ in spaced_evenly(list(range(10)), 4)] == [0, 3, 6, 9]
    assert len(spaced_evenly(list(range(3)), 8)) == len(spaced_evenly(list(range(3)), 0)) == 3


COMPILED = """
import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from tools.opinfo.compiled_judge import TRACED, judge

def samples(op, device, dtype, requires_grad, **_):
    made = [torch.randn(64, device=device, dtype=dtype, requires_grad=requires_grad) for _ in range(3)]
    return [SampleInput(made[0], args=tuple(made[1:]), kwargs={"value": 1.5})]

for op in (torch.addcmul, torch.addcdiv):
    info = OpInfo(op.__name__, op=op, dtypes=(torch.float32,), sample_inputs_func=samples)
    verdict = judge(info, torch.float32, 0, lambda _: None, "compiled")
    print(len(verdict.failures), verdict.part("backward").agreed, verdict.part(TRACED).agreed)
"""


@pytest.mark.full
def test_compiled_code_may_equal_the_traced_graph_in_place_of_the_script() -> None:
    """Dynamo replaces addcdiv by a division, a product and a sum; it leaves addcmul."""
    assert output(COMPILED, ISTHMUS_DRIVER="numpy", PYTHONPATH=str(ROOT)).splitlines() == ["0 1 0", "0 1 1"]


# ---- what the samples do not show


@pytest.mark.parametrize("shapes", [((0,), (10,)), ((1, 0), (3, 3)), ((1, 0), (3, 0)), ((2, 0), (1, 0))])
def test_copy_into_an_empty_tensor_checks_shapes(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    def copy(device: str) -> str:
        try:
            torch.empty(shapes[0], device=device).copy_(torch.ones(shapes[1], device=device))
        except RuntimeError as error:
            return str(error)
        return ""

    assert copy("chip") == copy("cpu")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_cells_refuse_weights_of_wrong_shape(cell: str) -> None:
    square = torch.ones(3, 3, device="chip")
    state = [square, square] if cell == "lstm" else square
    with pytest.raises(RuntimeError, match="weight_ih first dim must be"):
        getattr(torch, f"{cell}_cell")(square, state, square, square)
    fused = getattr(torch.ops.aten, f"_thnn_fused_{cell}_cell")
    with pytest.raises(RuntimeError, match=r"hidden_size rows"):
        fused(torch.ones(3, 5, device="chip"), torch.ones(3, 5, device="chip"), square)
