"""Launch helpers: rows of a tensor, block sizes, compute dtype."""

from functools import cache
from typing import NamedTuple

import torch
import triton.language as tl

# Maximum elements of a row held by one program.
WIDEST_ROW = 65536


class Plan(NamedTuple):
    """Launch configuration of programs that hold whole rows.

    Attributes:
        rows: rows per program.
        block: elements of a row, rounded up to a power of two.
        warps: warps per program.
    """

    rows: int
    block: int
    warps: int


def cdiv(a: int, b: int) -> int:
    """``ceil(a / b)``; triton.cdiv and triton.next_power_of_2 take microseconds on the host."""
    return -(-a // b)


def power_of_2(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


@cache
def plan(columns: int) -> Plan:
    """At least 2048 elements per program, in whole rows; 16 elements per thread."""
    block = power_of_2(columns)
    rows = max(1, 2048 // block)
    return Plan(rows, block, min(32, max(1, rows * block // 512)))


def too_wide(tensor: torch.Tensor) -> str:
    """Why a program cannot hold the tensor's rows, or ""."""
    columns = tensor.shape[-1] if tensor.dim() else 1
    return (
        ""
        if columns <= WIDEST_ROW
        else f"rows of {columns} elements exceed the kernel's limit of {WIDEST_ROW}"
    )


def in_rows(tensor: torch.Tensor, columns: int | None = None) -> torch.Tensor:
    """The tensor as [rows, columns], each row contiguous; copied only if necessary.

    Args:
        tensor: at least one element.
        columns: default: the size of the last dimension.
    """
    made = tensor.reshape(-1, tensor.shape[-1] if columns is None and tensor.dim() else columns or 1)
    return made if made.stride(1) == 1 or made.shape[1] == 1 else made.contiguous()


def like(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor of the same shape and dtype, uninitialized."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def wide(tensor: torch.Tensor) -> tl.dtype:
    """The compute dtype: float64 for float64 tensors, else float32."""
    return tl.float64 if tensor.dtype == torch.float64 else tl.float32


@cache
def processors(device: torch.device) -> int:
    """Number of multiprocessors; 3 for the interpreter, so that its programs have several rows."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3
