"""Unsupported layouts are refused by name, with a remedy."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_are_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"not supported on chip; use \.cpu\(\) first"):
        torch.quantize_per_tensor(torch.ones(3, device="chip"), 0.1, 10, torch.qint8)
    assert torch.ones(2, device="chip").sum().item() == 2
