"""Indices out of range on a chip whose kernels trust them: refused before a kernel runs, with the CPU's errors."""

from __future__ import annotations

import json

import pytest

from isthmus.opset import operators, schema_of
from isthmus.opset.indices import INDICES, rule_of
from tests.helpers.children import output

CALLS = """
import json, sys, torch
import torch.nn.functional as F

bad, dtype = BAD, getattr(torch, "DTYPE")
x, z, one = torch.arange(4.0, device="chip"), torch.zeros(4, device="chip"), torch.ones(2, device="chip")
logits, aten = x.view(1, 4).expand(2, 4), torch.ops.aten
index = torch.tensor([0, bad], dtype=dtype).to("chip")
wide = torch.ones(3, 4, device="chip")
CALLS = {
    "gather": lambda: x.gather(0, index),
    "gather of a column": lambda: wide.t().gather(-2, index.view(2, 1)),
    "gather into out=": lambda: torch.gather(x, 0, index, out=torch.empty(2, device="chip")),
    "scatter": lambda: z.scatter(0, index, one),
    "scatter_ of a number": lambda: z.clone().scatter_(0, index, 1.0),
    "scatter of an expanded index": lambda: wide.t().scatter(0, index.view(2, 1).expand(2, 3), 2.0),
    "scatter_add": lambda: z.scatter_add(0, index, one),
    "scatter_reduce": lambda: z.scatter_reduce(0, index, one, "amax"),
    "index_select": lambda: wide.index_select(1, index),
    "index_add": lambda: z.index_add(0, index, one),
    "index_copy": lambda: z.index_copy(0, index, one),
    "index_copy_": lambda: z.clone().index_copy_(0, index, one),
    "embedding": lambda: F.embedding(index, x.view(4, 1)),
    "embedding's gradient": lambda: aten.embedding_dense_backward(one.view(2, 1), index, 4, 3, False),
    "nll_loss": lambda: F.nll_loss(logits, index),
    "nll_loss's gradient": lambda: aten.nll_loss_backward(one[0], logits, index, None, 1, -100, one[0]),
    "nll_loss of images": lambda: F.nll_loss(wide.view(1, 4, 3, 1)[:, :, :2], index.view(1, 2, 1)),
    "cross_entropy": lambda: F.cross_entropy(logits, index, label_smoothing=0.1),
    "one_hot": lambda: F.one_hot(index, 4),
    "multi_margin_loss": lambda: F.multi_margin_loss(logits, index),
    "max_unpool2d": lambda: F.max_unpool2d(one.view(1, 1, 1, 2), index.view(1, 1, 1, 2), (1, 2)),
    "rows of experts": lambda: torch.ops.isthmus.gather_rows(x.view(4, 1), index, None),
    "compiled gather": lambda: torch.compile(torch.gather)(x, 0, index),
}
NEGATIVE = {
    "index": lambda: x[index],
    "index of the second dimension": lambda: wide[:, index],
    "index_put": lambda: z.clone().index_put_((index,), one, accumulate=True),
    "take": lambda: x.take(index),
}
import isthmus.ops
found = {}
for name, call in {**CALLS, **NEGATIVE}.items():
    try:
        call()
        found[name] = "accepted"
    except Exception as error:
        found[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
print(json.dumps([list(NEGATIVE), found]))
"""
RUNTIME_ERROR = ("gather", "scatter", "one_hot", "multi_margin", "max_unpool", "nll_loss of", "compiled")


def found(bad: int, dtype: str = "int64") -> tuple[list[str], dict[str, str]]:
    negative, errors = json.loads(
        output(CALLS.replace("BAD", str(bad)).replace("DTYPE", dtype), ISTHMUS_DRIVER="numpy")
    )
    return negative, errors


def test_minus_one_is_refused_except_where_it_counts_from_the_end() -> None:
    negative, errors = found(-1)
    assert {name for name, text in errors.items() if text == "accepted"} == set(negative)
    assert errors["gather"] == "RuntimeError: index -1 is out of bounds for dimension 0 with size 4"
    assert errors["index_select"] == "IndexError: index -1 is out of bounds for dimension 1 with size 4"
    assert errors["nll_loss"] == "IndexError: Target -1 is out of bounds."
    for name, text in errors.items():
        if text != "accepted" and name != "rows of experts":
            kind = "RuntimeError" if name.startswith(RUNTIME_ERROR) else "IndexError"
            assert text.startswith(kind), (name, text)


@pytest.mark.parametrize("bad", [4, -5, 2**63 - 1, -(2**63)])
def test_indices_beyond_the_ends_are_refused_everywhere(bad: int) -> None:
    _, errors = found(bad)
    assert "accepted" not in errors.values()
    assert errors["index"] == f"IndexError: index {bad} is out of bounds for dimension 0 with size 4"


REPLAYED = """
import torch

x, index, out = torch.arange(4.0, device="chip"), torch.zeros(2, dtype=torch.int64, device="chip"), []
graph = torch.chip.Graph()
with torch.chip.graph(graph):
    out.append(x.gather(0, index))
for value in (3, -1):
    index.fill_(value)
    try:
        graph.replay()
        torch.accelerator.synchronize()
        print(out[0].tolist())
    except RuntimeError as error:
        print("out of bounds" in str(error))
"""


def test_a_replay_checks_the_indices_of_its_time() -> None:
    assert output(REPLAYED, ISTHMUS_DRIVER="numpy").splitlines() == ["[3.0, 3.0]", "True"]


ALLOWED = """
import torch
import torch.nn.functional as F

t = torch.tensor
for device in ("cpu", "chip"):
    x = torch.arange(8.0).view(2, 4).log_softmax(-1).to(device)
    print(
        F.nll_loss(x, t([1, -100]).to(device)).item(),
        F.nll_loss(x, t([-1, 3]).to(device), ignore_index=-1).item(),
        F.cross_entropy(x, t([2, 9]).to(device), ignore_index=9).item(),
        x.gather(1, torch.empty(2, 0, dtype=torch.int64).to(device)).tolist(),
        x.sum().gather(0, t([0, 0]).to(device)).tolist(),
        F.embedding(t([1, 0], dtype=torch.int32).to(device), x, padding_idx=0).tolist(),
        x[t([-2, 1]).to(device), t([-4, 3]).to(device)].tolist(),
        t([5, 7]).to(device).index_add(0, t([0, 1]).to(device), t([2, -3]).to(device), alpha=1.5).tolist(),
        t([True]).to(device).index_add(0, t([0]).to(device), t([True]).to(device), alpha=0.5).tolist(),
        t(5).to(device).index_add(0, t(0).to(device), t(2).to(device), alpha=2).item(),
    )
"""


def test_ignored_empty_and_negative_indices_are_allowed() -> None:
    expected, got = output(ALLOWED, ISTHMUS_DRIVER="numpy").splitlines()
    assert got == expected


REFUSED = """
import torch
import torch.nn.functional as F

t = torch.tensor
for device in ("cpu", "chip"):
    number, one, at = t(5.0).to(device), t([2.0]).to(device), t([0, -1]).to(device)
    for call in (
        lambda: number.index_add(0, at[:1], one),
        lambda: one.index_add(0, at[0], number),
        lambda: F.embedding(at, torch.empty(4, 0).to(device)),
        lambda: F.embedding(at + 9, torch.empty(4, 0).to(device)),
    ):
        try:
            print(call())
        except (RuntimeError, IndexError):
            print("refused")
"""


def test_index_add_of_other_dimensions_and_rows_of_no_elements_are_refused() -> None:
    assert output(REFUSED, ISTHMUS_DRIVER="numpy").splitlines() == ["refused"] * 8


def test_every_rule_names_arguments_of_its_operator() -> None:
    assert set(INDICES) <= set(operators())
    for name in INDICES:
        assert rule_of(schema_of(name)) is not None


def test_every_index_argument_of_the_opset_has_a_rule() -> None:
    names = ("index", "indices", "target", "rows", "positions")
    missing = {
        name
        for name in operators()
        if name not in INDICES and any(a.name in names and a.is_tensor for a in schema_of(name).inputs)
    }
    assert missing == {"aten::mse_loss", "aten::mse_loss_backward"}  # their targets are values
