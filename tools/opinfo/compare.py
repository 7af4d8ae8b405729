"""Bit-exact comparison of two outcomes: results or exceptions of the chip against the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from .twin import CHIP, parts_of, to_cpu

# Required agreement: every bit, values within a tolerance, or only dtypes, shapes and strides. "near" is of kernels
# that compute in another order, "close" of operators that are not repeatable.
Compared = Literal["bits", "near", "close", "metadata"]
TOLERANCES = {"near": (1e-4, 1e-5), "close": (1e-3, 1e-3)}  # relative, and of the largest element or 1


@dataclass
class Outcome:
    """Result of a call, or the exception that it raised."""

    value: Any = None
    error: Exception | None = None


def attempt(function: Callable[[], Any], seed: int = 0) -> Outcome:
    """Call a function after seeding every generator."""
    torch.manual_seed(seed)
    try:
        return Outcome(value=function())
    except Exception as error:
        return Outcome(error=error)


def one_line(error: BaseException) -> str:
    """Return the type and first line of an exception."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


def same_message(chip: BaseException, cpu: BaseException) -> bool:
    """Whether two messages are equal except for the device."""

    def normal(error: BaseException) -> str:
        text = str(error).lower().split("exception raised from")[0]
        text = re.sub(r"chip(:\d+)?|privateuse(one|1)", "cpu", text)
        return re.sub(r"0x[0-9a-f]+|\s+", " ", text)

    return normal(chip) == normal(cpu)


def _geometry(tensor: torch.Tensor) -> dict[str, Any]:
    facts: dict[str, Any] = {"dtype": tensor.dtype, "layout": tensor.layout, "dimensions": tensor.dim()}
    if tensor.layout == torch.sparse_coo:
        facts["coalesced"] = tensor.is_coalesced()
    if not tensor.is_nested:
        facts["shape"] = tuple(tensor.shape)
    if tensor.layout == torch.strided and not tensor.is_nested:
        facts["stride"] = tensor.stride()
        facts["offset"] = tensor.storage_offset()
    facts["conj"], facts["neg"] = tensor.is_conj(), tensor.is_neg()
    facts["zero tensor"] = tensor._is_zerotensor()
    facts["requires_grad"] = tensor.requires_grad
    return facts


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of a CPU tensor as bytes, in logical order."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain._is_zerotensor():
        plain = torch.zeros(plain.shape, dtype=plain.dtype)
    flat = torch.empty(
        plain.numel(), dtype=plain.dtype
    )  # the stride is 1 even where a dimension has one element
    return flat.copy_(plain.reshape(-1)).view(torch.uint8)


def _largest_difference(chip: torch.Tensor, cpu: torch.Tensor) -> str:
    wide = torch.complex128 if chip.is_complex() else torch.float64
    a, b = chip.detach().to(wide), cpu.detach().to(wide)
    unequal = int((a != b).sum())
    return (
        f"{unequal} of {a.numel()} elements differ, by up to {float((a - b).abs().nan_to_num(0).max()):.3g}"
    )


def _size(tensor: torch.Tensor) -> float:
    """Return the largest finite magnitude, at least 1."""
    plain = tensor.detach()
    wide = plain.to(torch.complex128 if plain.is_complex() else torch.float64).abs()
    return max(1.0, float(wide[wide.isfinite()].amax()) if wide.isfinite().any() else 1.0)


def tensor_difference(chip: torch.Tensor, cpu: torch.Tensor, values: Compared = "bits") -> str:
    """Return the difference of two tensors; "" if they are equal to the bit."""
    here, there = _geometry(chip), _geometry(cpu)
    for key in there:
        if here[key] != there[key]:
            return f"{key} is {here[key]}, on CPU {there[key]}"
    if values == "metadata" or cpu.device.type == "meta":
        return ""
    ours, theirs = parts_of(chip.detach()), parts_of(cpu.detach())
    if len(ours) != len(theirs):
        return f"{len(ours)} parts, on CPU {len(theirs)}"
    for one, other in zip(ours, theirs, strict=True):
        if found := tensor_difference(one, other, values):
            return f"a part's {found}"
    if ours:
        return ""
    moved = to_cpu(chip)
    if torch.equal(raw(moved), raw(cpu)):
        return ""
    if values in TOLERANCES:
        relative, absolute = TOLERANCES[values]
        if torch.allclose(moved, cpu, rtol=relative, atol=absolute * _size(cpu), equal_nan=True):
            return ""
    return _largest_difference(moved, cpu)


def value_difference(chip: Any, cpu: Any, values: Compared = "bits", placed: bool = True) -> str:
    """Return the difference of two nested results; "" if there is none.

    Args:
        values: what has to agree in the tensors.
        placed: whether every tensor of ``chip`` has to be on the chip.
    """
    if isinstance(chip, torch.Tensor) and isinstance(cpu, torch.Tensor):
        if placed and cpu.device.type == "cpu" and chip.device.type != CHIP:
            return f"result is on {chip.device}, not on chip"
        return tensor_difference(chip, cpu, values)
    if type(chip).__name__ != type(cpu).__name__:
        return f"result is a {type(chip).__name__}, on CPU a {type(cpu).__name__}"
    if isinstance(cpu, dict):
        chip, cpu = list(chip.items()), list(cpu.items())
    if isinstance(cpu, list | tuple):
        if len(chip) != len(cpu):
            return f"{len(chip)} results, on CPU {len(cpu)}"
        for index, (a, b) in enumerate(zip(chip, cpu, strict=True)):
            if found := value_difference(a, b, values, placed):
                return f"[{index}] {found}"
        return ""
    if isinstance(cpu, torch.device) or cpu is None or values != "bits":
        return ""
    both_nan = isinstance(cpu, float) and chip != chip and cpu != cpu
    return "" if both_nan or chip == cpu else f"result is {chip!r}, on CPU {cpu!r}"


def outcome_difference(chip: Outcome, cpu: Outcome, values: Compared = "bits", placed: bool = True) -> str:
    """Return the difference of two outcomes; "" for equal results or the same type of exception."""
    if chip.error is None and cpu.error is None:
        return value_difference(chip.value, cpu.value, values, placed)
    if chip.error is None:
        assert cpu.error is not None
        return f"returned where CPU raises {one_line(cpu.error)}"
    if cpu.error is None:
        return f"raised {one_line(chip.error)}"
    if type(chip.error) is type(cpu.error):
        return ""
    return f"raised {one_line(chip.error)}, on CPU {one_line(cpu.error)}"
