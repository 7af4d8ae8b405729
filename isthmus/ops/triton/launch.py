"""How the kernels are launched: rows of a tensor, block sizes, the type that is computed in."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Plan(NamedTuple):
    """How rows are given to programs that hold whole rows.

    Attributes:
        rows: of one program.
        block: elements of a row, rounded up to a power of two.
        warps: of one program.
    """

    rows: int
    block: int
    warps: int


def plan(columns: int) -> Plan:
    """Programs of 2048 elements, or of one row if that is longer; 16 elements for a thread."""
    block = triton.next_power_of_2(columns)
    rows = max(1, 2048 // block)
    return Plan(rows, block, min(32, max(1, rows * block // 512)))


def in_rows(tensor: torch.Tensor, columns: int | None = None) -> torch.Tensor:
    """The tensor as [rows, columns], each row contiguous; copied only if its strides do not allow that.

    Args:
        tensor: at least one element.
        columns: the size of the last dimension by default.
    """
    made = tensor.reshape(-1, tensor.shape[-1] if columns is None and tensor.dim() else columns or 1)
    return made if made.stride(1) == 1 or made.shape[1] == 1 else made.contiguous()


def wide(tensor: torch.Tensor) -> tl.dtype:
    """What is computed in: float32 at least."""
    return tl.float64 if tensor.dtype == torch.float64 else tl.float32


def wide_dtype(tensor: torch.Tensor) -> torch.dtype:
    """:func:`wide` as PyTorch has it."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


@cache
def processors(device: torch.device) -> int:
    """Of the device; 3 for the interpreter, so that its programs have several rows."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3
