"""Arguments of rows that no ATen operator has the name of, as in case_arguments.py."""

from collections.abc import Callable
from typing import Any

import torch

from tests.runtime.tensors import real, whole

VENDOR_CASES: dict[str, Callable[[], list[Any]]] = {
    "ChunkCat": lambda: [[real(4, 3), real(6, 2)], 0, 2],
    "FakeQuantPerTensorAffineCachemask": lambda: [
        real(3, 4),
        torch.tensor([0.1]),
        torch.tensor([2], dtype=torch.int32),
        1.0,
        -20,
        15,
    ],
    "GatherV3": lambda: [real(4, 3), 0, whole(2, 3, high=4), 0, 0],
    "IndexAddV2": lambda: [real(4, 3), 0, torch.tensor([2, 0, 2]), real(3, 3), 0.5, 1],
    "MoeComputeExpertTokens": lambda: [torch.tensor([0, 0, 1, 3, 3, 3], dtype=torch.int32), 5],
    "RotaryPositionEmbeddingV2": lambda: [real(2, 3, 4), real(2, 3, 4), real(2, 3, 4), 0, real(4, 4)],
    "TransformBiasRescaleQkv": lambda: [real(2, 3, 24).contiguous(), real(24).contiguous(), 2],
}
