"""Comparison of a result with its reference, element by element."""

import math
from dataclasses import dataclass
from typing import Any

import torch

# An element's error in ulps may be this many times that of the CPU kernel in the same dtype.
CPU_FACTOR = 4.0
_EXPONENT = 0x7FF << 52  # exponent bits of a float64


@dataclass(frozen=True)
class Limit:
    """Limit of an element's error (:class:`isthmus.opset.operator.Tolerance`).

    Attributes:
        ulp: units in the last place of the reference.
        accumulate: rounding steps of the compute dtype, relative to the magnitude.
        source: origin of the limit, "opset" or "default".
        pointwise: whether each element depends on few numbers, so that only its own size bounds its error.
    """

    ulp: float = 4.0
    accumulate: float = 0.0
    source: str = "default"
    pointwise: bool = False


@dataclass(frozen=True)
class Difference:
    """A wrong result.

    Attributes:
        result: name of the result.
        reason: one line.
        index: of the worst element.
        got, expected: values of the worst element.
        ulps: error in units in the last place of the result's dtype; -1 if undefined.
        wrong: number of elements beyond the limit.
    """

    result: str
    reason: str
    index: tuple[int, ...] = ()
    got: float = 0.0
    expected: float = 0.0
    ulps: float = -1.0
    wrong: int = 0

    @property
    def text(self) -> str:
        """The difference in one line."""
        if not self.wrong:
            return f"{self.result}: {self.reason}".removeprefix(": ")
        ulps = f", {self.ulps:.4g} ulp" if self.ulps >= 0 else ""
        return (
            f"{self.result}{list(self.index)} is {self.got:.9g}, expected {self.expected:.9g}"
            f" ({self.reason}{ulps}; {self.wrong} elements wrong)"
        )


def judge(
    name: str,
    got: torch.Tensor,
    reference: torch.Tensor,
    native: torch.Tensor,
    limit: Limit = Limit(),
    magnitude: torch.Tensor | None = None,
) -> tuple[Difference | None, float]:
    """Compare a result with its reference; all tensors are on CPU.

    Args:
        name: name of the result.
        got: result of the chip.
        reference: float64 for floats, the exact dtype otherwise.
        native: result of the CPU kernel in the call's dtype: it defines shape and dtype, and the error that a correct
            kernel may have.
        limit: limit of errors of floats.
        magnitude: sum of the absolute values of the terms, float64.

    Returns:
        The difference, or None; and the largest error in ulps.
    """
    if got.shape != native.shape:
        return Difference(name, f"shape {list(got.shape)}, expected {list(native.shape)}"), -1.0
    if got.dtype != native.dtype:
        return Difference(name, f"dtype {got.dtype}, expected {native.dtype}"), -1.0
    if got.numel() == 0:
        return None, 0.0
    if got.is_complex():
        real, exact, own = (torch.view_as_real(t.resolve_conj()) for t in (got, reference, native))
        return judge(name, real, exact, own, limit)
    if not got.is_floating_point():
        return _exact(name, got, reference.to(got.dtype))
    return _floats(name, got, reference.double(), native, limit, magnitude)


def _exact(name: str, got: torch.Tensor, reference: torch.Tensor) -> tuple[Difference | None, float]:
    wrong = got != reference
    count = int(wrong.sum())
    if not count:
        return None, 0.0
    index = _first_index(wrong)
    return (
        Difference(
            name, "differs", index, float(got[index].item()), float(reference[index].item()), -1.0, count
        ),
        -1.0,
    )


def _floats(
    name: str, got: torch.Tensor, reference: torch.Tensor, native: torch.Tensor, limit: Limit, magnitude: Any
) -> tuple[Difference | None, float]:
    value, rounded, own = got.double(), reference.to(got.dtype).double(), native.double()
    special = ~(value.isfinite() & rounded.isfinite())
    misplaced = special & ~_are_same(value, rounded) & ~_are_same(value, own)
    if misplaced.any():
        return _difference_at(
            name,
            "NaN or infinity",
            _first_index(misplaced),
            value,
            reference,
            got.dtype,
            int(misplaced.sum()),
        )
    error = torch.where(special | (value == rounded), 0.0, (value - reference).abs())
    ulp = ulp_of(got.dtype, reference)
    ulps = torch.where(special, 0.0, error / ulp)
    smallest = torch.finfo(got.dtype).tiny * (got.dtype != torch.float16)
    summed = torch.zeros_like(ulp)
    if magnitude is not None:
        summed = summed + limit.accumulate * _compute_eps(got.dtype) * magnitude.double()
    allowed = limit.ulp * ulp + smallest + summed
    wrong = error > allowed
    if wrong.any():
        own_error = (own - reference).abs().nan_to_num(0.0, 0.0, 0.0)
        allowed = torch.maximum(allowed, _admitted_error(own_error, ulp, summed, limit))
        wrong &= error > allowed
    count, worst = int(wrong.sum()), float(ulps.max())
    if not count:
        return None, worst
    ratio = torch.where(wrong, error / allowed.clamp_min(1e-300), 0.0)
    return _difference_at(
        name, "differs", _unravel(int(ratio.argmax()), got.shape), value, reference, got.dtype, count
    )


def _admitted_error(own: torch.Tensor, ulp: torch.Tensor, summed: torch.Tensor, limit: Limit) -> torch.Tensor:
    """Return the error that the CPU kernel's own errors, beyond those of summing, allow each element.

    Each element is measured in its own ulp, so rounding of a large element does not excuse a small one. If the
    operator is not pointwise, terms may cancel, and the largest loss before the last rounding counts for all.
    """
    own = (own - summed).clamp_min(0.0)
    allowed = summed + CPU_FACTOR * (own / ulp).max() * ulp
    if limit.pointwise:
        return allowed
    lost = (own - 0.5 * ulp).clamp_min(0.0).max()
    return torch.maximum(allowed, summed + limit.ulp * ulp + CPU_FACTOR * lost)


def _are_same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def _difference_at(
    name: str,
    reason: str,
    index: tuple[int, ...],
    value: torch.Tensor,
    reference: torch.Tensor,
    dtype: torch.dtype,
    count: int,
) -> tuple[Difference, float]:
    got, expected = float(value[index].item()), float(reference[index].item())
    ulps = abs(got - expected) / float(ulp_of(dtype, reference[index]).item())
    ulps = ulps if math.isfinite(ulps) else -1.0
    return Difference(name, reason, index, got, expected, ulps, count), ulps


def ulp_of(dtype: torch.dtype, value: torch.Tensor) -> torch.Tensor:
    """Return the distance between neighbours of a dtype at a float64 value, at least that of subnormal numbers."""
    info = torch.finfo(dtype)
    size = value.abs().nan_to_num(0.0, info.max).clamp(info.tiny, info.max)
    powers = (size.view(torch.int64) & _EXPONENT).view(torch.float64)  # the largest power of two below each
    return powers * info.eps


def _compute_eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype if dtype in (torch.float32, torch.float64) else torch.float32).eps


def _first_index(mask: torch.Tensor) -> tuple[int, ...]:
    return _unravel(int(mask.flatten().to(torch.uint8).argmax()), mask.shape)


def _unravel(flat: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return tuple(reversed(index))
