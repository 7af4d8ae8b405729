"""Launches of kernels, and their helpers: rows of a tensor, block sizes, compute dtype."""

from functools import cache
from typing import Any, NamedTuple

import torch
import triton.language as tl
from triton.runtime import driver

# Maximum elements of a row held by one program.
WIDEST_ROW = 65536
_MOST_COMPILED = 4096  # entries of the cache, which has one per combination of sizes
_compiled: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}


def launch(
    kernel: Any, programs: int, tensors: tuple[torch.Tensor | None, ...], numbers: tuple[Any, ...],
    constants: dict[str, Any], warps: int, stages: int = 3,
) -> None:  # fmt: skip
    """Launch programs of a kernel on the device of the first tensor, which is the current one.

    Triton classifies every argument of every launch to find the compiled kernel, which takes longer than the launch.
    Here it is found by the values of the arguments, if all tensors are aligned.

    Args:
        kernel: its arguments are the tensors, then the numbers, then the constants.
        programs: how many.
        tensors: None where the kernel takes no tensor.
        numbers: integers, None, and tuples of them.
        constants: compile-time constants, by name.
        warps: per program.
        stages: of software pipelining.
    """
    address, device = 0, tensors[0].get_device()  # type: ignore[union-attr]
    key: list[Any] = [kernel.fn, device, warps, stages, numbers, *constants.values()]
    for each in tensors:
        if each is None:
            key.append(None)
        else:
            key.append(each.dtype)
            address |= each.data_ptr()
    found = None if address % 16 else _compiled.get(tuple(key))
    if found is not None:
        made, fixed = found
        stream = driver.active.get_current_stream(device)
        made.run(  # the last line of JITFunction.run, without its hooks for profilers
            programs, 1, 1, stream, made.function, made.packed_metadata, None, None, None, *tensors, *numbers, *fixed,
        )  # fmt: skip
        return
    made = kernel[(programs,)](*tensors, *numbers, **constants, num_warps=warps, num_stages=stages)
    if made is not None and not address % 16:  # the interpreter compiles nothing
        if len(_compiled) >= _MOST_COMPILED:
            _compiled.clear()
        _compiled[tuple(key)] = made, [constants[name] for name in kernel.arg_names if name in constants]


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
    """Return the launch for at least 2048 elements per program, in whole rows; 16 elements per thread."""
    block = power_of_2(columns)
    rows = max(1, 2048 // block)
    return Plan(rows, block, min(32, max(1, rows * block // 512)))


def too_wide(tensor: torch.Tensor) -> str:
    """Return why a program cannot hold the tensor's rows, or ""."""
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
    if device.type == "cpu":
        return 3
    found: int = driver.active.utils.get_device_properties(device.index)["multiprocessor_count"]
    return found
