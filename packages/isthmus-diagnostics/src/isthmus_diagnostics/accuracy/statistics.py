"""Statistics of tensors, computed on their device in one pass and read in batches.

A row has eight float64 numbers: least, most, sum, sum of squares, zeros, NaN, infinities, and the bits of a 64-bit
hash. NaN and infinities are counted and left out of the first four.
"""

import math
from typing import Any, NamedTuple

import torch

from isthmus.ops import cpu
from isthmus.ops.registration import addressed_by_cpu

COLUMNS = 8
# Odd numbers, as in csrc/kernels/tensor_statistics.cpp.
_FACTOR, _STEP = -2960836687051489901, -7046029254386353131


class Statistics(NamedTuple):
    """Statistics of a tensor's values.

    Attributes:
        min, max, mean, norm: of the finite elements; NaN if there is none.
        nans, infinities, zeros: numbers of elements.
        hash: of the bits, in the order of the elements; "" if it was not computed.
    """

    min: float
    max: float
    mean: float
    norm: float
    nans: int = 0
    infinities: int = 0
    zeros: int = 0
    hash: str = ""


def is_measurable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has values to summarize."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and tensor.device.type != "meta"
    )


def elements(tensor: torch.Tensor) -> int:
    """Return how many numbers a tensor has; a complex one has two for each element."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def measure(tensor: torch.Tensor, rows: torch.Tensor, row: int, hashed: bool) -> None:
    """Write the statistics of a tensor to a row, without waiting for the device."""
    if addressed_by_cpu(tensor.device.type) and not cpu.why_unavailable():
        torch.ops.isthmus_cpu.tensor_statistics(tensor.resolve_conj().resolve_neg(), rows, row, hashed)
    else:
        rows[row] = compose(tensor, hashed)


def compose(tensor: torch.Tensor, hashed: bool) -> torch.Tensor:
    """Return the row of a tensor, computed in PyTorch's operators on its device."""
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    values = values.detach().contiguous()
    row = torch.zeros(COLUMNS, dtype=torch.float64, device=values.device)
    row[0], row[1] = math.inf, -math.inf
    if values.numel():
        wide = values.to(torch.float64)
        finite = wide.isfinite()
        known = wide.where(finite, 0.0)
        numbers = [
            wide.where(finite, math.inf).min(), wide.where(finite, -math.inf).max(), known.sum(),
            known.square().sum(), (wide == 0).sum(), wide.isnan().sum(), wide.isinf().sum(),
        ]  # fmt: skip
        row[:7] = torch.stack([number.to(torch.float64) for number in numbers])
    if hashed:
        row[7:] = _hash(values).view(torch.float64)
    return row


def _hash(values: torch.Tensor) -> torch.Tensor:
    flat = values.reshape(-1).view(torch.uint8)
    flat = torch.nn.functional.pad(flat, (0, -flat.numel() % 8))
    words = flat.view(torch.int64)
    places = torch.arange(1, words.numel() + 1, device=words.device)
    mixed = (words ^ places * _STEP) * _FACTOR
    mixed = mixed ^ (mixed >> 32 & 0xFFFFFFFF)
    return (mixed * _FACTOR).sum().reshape(1)


def read(rows: torch.Tensor, counts: list[int], hashed: bool) -> list[Statistics]:
    """Read rows from their device, which waits for it.

    Args:
        rows: float64 [n, 8].
        counts: number of elements of each tensor.
        hashed: whether they have hashes.
    """
    numbers = rows.to("cpu")
    hashes = numbers.view(torch.int64)[:, 7].tolist() if hashed else [None] * len(counts)
    return [_statistics(row, n, h) for row, n, h in zip(numbers.tolist(), counts, hashes, strict=True)]


def _statistics(row: list[float], count: int, bits: Any) -> Statistics:
    least, most, total, squares, zeros, nans, infinities, _ = row
    finite = count - int(nans) - int(infinities)
    text = "" if bits is None else f"{bits & (1 << 64) - 1:016x}"
    if not finite:
        return Statistics(math.nan, math.nan, math.nan, math.nan, int(nans), int(infinities), 0, text)
    return Statistics(
        least, most, total / finite, math.sqrt(squares), int(nans), int(infinities), int(zeros), text
    )
