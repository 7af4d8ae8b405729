"""Unsupported layouts are refused by name, with a remedy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, 3, device="chip").to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="chip").unbind(),
        lambda: torch.quantize_per_tensor(torch.ones(3, device="chip"), 0.1, 10, torch.qint8),
    ],
    ids=["to_sparse_csr", "nested", "quantized"],
)
@pytest.mark.filterwarnings("ignore")
def test_refused(make: Callable[[], torch.Tensor]):
    with pytest.raises(
        NotImplementedError, match=r"not supported on chip; (use \.cpu\(\) first|keep them on CPU)"
    ):
        make()
    assert torch.ones(2, device="chip").sum().item() == 2
