"""Unsupported layouts are refused by name, with a remedy."""

from __future__ import annotations

import pytest
import torch


def test_mkldnn_tensors_are_refused() -> None:
    with pytest.raises(
        NotImplementedError, match="mkldnn tensors are not supported on chip; keep them on CPU"
    ):
        torch.ones(2, 2, device="chip").to_mkldnn()
    assert torch.ones(2, device="chip").sum().item() == 2
