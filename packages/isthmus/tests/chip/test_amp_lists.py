"""Autocast treats every operator as CUDA's does: the same lists, and the dtype of each result."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch.testing._internal.autocast_test_lists import AutocastTestLists

# Operators on CUDA's list, and CUDA's own.
CUDA_ONLY = {"aten::cudnn_convolution", "aten::cudnn_convolution_transpose", "aten::_cudnn_rnn"}


class Case(NamedTuple):
    """One row of PyTorch's lists: an operator, its arguments, and the result's dtype (None: autocast's own)."""

    name: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    modules: tuple[Any, ...]
    dtype: torch.dtype | None


def registered(key: str) -> set[str]:
    names = {
        name.split("::")[0] + "::" + name.split("::")[1] for name in torch._C._dispatch_get_all_op_names()
    }
    return {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)}


def test_lists_are_those_of_cuda():
    cuda, chip = registered("AutocastCUDA"), registered("AutocastPrivateUse1")
    assert len(cuda) > 80
    assert chip == cuda - CUDA_ONLY


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "torch": (torch,),
    "nn": (torch._C._nn,),
    "linalg": (torch.ops.aten,),
    "methods": (torch.Tensor,),
}


def cases() -> list[Case]:
    lists = AutocastTestLists(torch.device("chip"))
    found = []
    for group, rows in vars(lists).items():
        if group == "banned":
            continue
        kind, _, treatment = group.partition("_")
        for row in rows:
            name, arguments, *rest = row
            if name == "einsum":  # its row has operands of the wrong rank; PyTorch's own test leaves it out
                arguments, rest = (
                    ("ij,jk->ik", torch.ones(2, 2, device="chip"), torch.ones(2, 2, device="chip")),
                    [],
                )
            keywords = next((item for item in rest if isinstance(item, dict)), {})
            given = next((item for item in rest if isinstance(item, torch.dtype)), None)
            dtype = {"fp16": None, "fp32": torch.float32}.get(treatment, given or torch.float32)
            if f"aten::{name}" not in CUDA_ONLY:
                found.append(Case(name, tuple(arguments), keywords, FUNCTIONS[kind], dtype))
    return found


CASES = cases()


def call(case: Case) -> Any:
    function = next(getattr(module, case.name) for module in case.modules if hasattr(module, case.name))
    return function(*case.arguments, **case.keywords)


@pytest.mark.parametrize("lower", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_dtype_of_the_result(case: Case, lower: torch.dtype):
    if not any(hasattr(module, case.name) for module in case.modules):
        assert case.name == "__div__", "a method that Python 2 had"
        return
    case = case._replace(arguments=cast(case.arguments, lower))
    with torch.autocast("chip", dtype=lower):
        result = call(case)
    expected = case.dtype or lower
    for tensor in result if isinstance(result, (tuple, list)) else [result]:
        if isinstance(tensor, torch.Tensor) and tensor.dtype != torch.bool:
            assert tensor.dtype == expected
            assert tensor.device.type == "chip"


def cast(value: Any, lower: torch.dtype) -> Any:
    """The lists are written for float16."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.float16:
        return value.to(lower)
    return type(value)(cast(item, lower) for item in value) if isinstance(value, (tuple, list)) else value


def test_the_cases_cover_the_lists():
    assert len(CASES) > 110
    names = {case.name for case in CASES}
    assert {"linear", "softmax", "layer_norm", "nll_loss", "addcmul", "cat", "lstm_cell"} <= names


def test_attention_computes_in_the_lower_dtype():
    q = torch.randn(1, 2, 4, 8, device="chip")
    with torch.autocast("chip", dtype=torch.bfloat16):
        assert torch.nn.functional.scaled_dot_product_attention(q, q, q).dtype == torch.bfloat16


def test_binary_cross_entropy_is_refused():
    p = torch.rand(4, device="chip")
    with torch.autocast("chip", dtype=torch.float16), pytest.raises(RuntimeError, match="unsafe to autocast"):
        torch.nn.functional.binary_cross_entropy(p, p)
