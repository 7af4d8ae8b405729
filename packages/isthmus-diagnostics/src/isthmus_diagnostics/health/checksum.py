"""Checksums of matrix products: sums of the rows or columns of C = AB against those computed from A and B.

K.-H. Huang and J. A. Abraham, "Algorithm-Based Fault Tolerance for Matrix Operations", IEEE Transactions on Computers
C-33, 1984: C 1 = A (B 1) and 1 C = (1 A) B. The sums are computed in float64 (in float32 where a device lacks it).

Tolerance of a row, after N. J. Higham and T. Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM
Journal on Scientific Computing 41, 2019: an inner product of length K has a relative error of about sqrt(K) u against
|A| |B|. With u_a, the unit roundoff of the accumulation (of float32 for half precision), u_i, that of inputs that the
device may round (TF32), and u_o, that of the result, for N columns:
8 (((sqrt(K + N) u_a + u_i) |A| |B| 1) + u_o ||C||_2). Columns likewise.
"""

import math
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus_diagnostics.health.watch_errors import Guard

_SAFETY = 8.0
_ROUNDED = {
    "highest": 0.0,
    "high": 2.0**-11,
    "medium": 2.0**-8,
}  # float32 inputs: as they are, TF32, bfloat16
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class Mismatch(NamedTuple):
    """A product whose checksums do not agree.

    Attributes:
        operator: its name.
        shape: (batch, M, K, N).
        row, column: of the largest deviations.
        ratio: largest deviation in units of its tolerance; infinite for a NaN or an infinity.
        repeats: whether a second computation fails too: a defect that stays, or a wrong kernel.
    """

    operator: str
    shape: tuple[int, int, int, int]
    row: int
    column: int
    ratio: float
    repeats: bool

    def __str__(self) -> str:
        batch, m, k, n = self.shape
        again = "and does so again when computed anew" if self.repeats else "but not when computed anew"
        return (
            f"{self.operator} of [{batch}, {m}, {k}] x [{batch}, {k}, {n}] is wrong near row {self.row}, column "
            f"{self.column} ({self.ratio:.3g} times the tolerance), {again}"
        )


def _accumulation(dtype: torch.dtype) -> float:
    wide = dtype if dtype in (torch.float64, torch.float32) else torch.float32
    return torch.finfo(wide).eps / 2


def _wide_dtype(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


def ratios(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, added: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the deviation of each row's sum, in units of its tolerance.

    Args:
        a: [..., M, K], floating-point.
        b: [..., K, N].
        c: [..., M, N], the product, of which `added` is a summand.
        added: broadcast to the shape of c.

    Returns:
        [..., M]. Infinite where c has a NaN or an infinity that a and b do not explain; 0 where they do.
    """
    limits, unit = torch.finfo(c.dtype), _accumulation(c.dtype)
    rounded = _ROUNDED[torch.get_float32_matmul_precision()] if a.dtype == torch.float32 else 0.0
    wide = _wide_dtype(a.device)
    middle = torch.promote_types(c.dtype, torch.float32)
    expected = (a.to(wide) @ b.sum(-1, keepdim=True, dtype=wide)).squeeze(-1)
    size = (a.abs().to(middle) @ b.abs().sum(-1, keepdim=True, dtype=middle)).squeeze(-1)
    if added is not None:
        added = added.expand(c.shape)
        expected = expected + added.sum(-1, dtype=wide)
        size = size + added.abs().sum(-1, dtype=middle)
    norm = torch.linalg.vector_norm(c, dim=-1, dtype=wide)
    relative = math.sqrt(a.shape[-1] + c.shape[-1]) * unit + 2 * rounded
    tolerance = _SAFETY * (relative * size.to(wide) + limits.eps / 2 * norm) + c.shape[-1] * limits.tiny
    ratio = (c.sum(-1, dtype=wide) - expected).abs() / tolerance
    # Sums of inputs that are not finite or whose product may overflow tell nothing.
    explained = ~size.isfinite() | (size > limits.max)
    return ratio.where(ratio.isfinite(), math.inf).masked_fill(explained, 0.0)


class Checksums(TorchDispatchMode):
    """Checks the matrix products of this thread, and of its backward passes, while it is entered.

    Args:
        found: called with each mismatch.
        guard: a block for each check.
    """

    def __init__(self, found: Any, guard: Guard | None = None) -> None:
        super().__init__()
        self._found = found
        self._guard = guard or Guard()
        self.checked = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call, and check it if it is a product."""
        kwargs = kwargs or {}
        result = op(*args, **kwargs)
        factors = _factors(op, args, kwargs)
        if factors is not None and not torch.compiler.is_compiling():
            with self._guard:
                self._check(op, factors, result, lambda: op(*args, **kwargs))
        return result

    def _check(self, op: Any, factors: tuple[Any, Any, Any], result: torch.Tensor, again: Any) -> None:
        a, b, added = (each.detach() if isinstance(each, torch.Tensor) else each for each in factors)
        if (
            not all(type(each) is torch.Tensor and each.dtype in _FLOATS for each in (a, b))
            or result.is_meta
            or not result.numel()
        ):
            return
        self.checked += 1
        worst = _worst_element(a, b, added, result.detach())
        if worst[0] > 1:
            repeats = _worst_element(a, b, added, again().detach())[0] > 1
            batch = a.shape[0] if a.dim() == 3 else 1
            shape = (batch, a.shape[-2], a.shape[-1], b.shape[-1])
            self._found(Mismatch(op.name(), shape, worst[1], worst[2], worst[0], repeats))


def _factors(op: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any] | None:
    """Return a, b and the summand of a product, or None."""
    aten = torch.ops.aten
    if op in (aten.mm.default, aten.bmm.default):
        return args[0], args[1], None
    if op in (aten.addmm.default, aten.baddbmm.default) and not kwargs:  # beta and alpha are 1
        return args[1], args[2], args[0]
    return None


def _worst_element(a: torch.Tensor, b: torch.Tensor, added: Any, c: torch.Tensor) -> tuple[float, int, int]:
    """Return the largest ratio, and its row and column.

    Rows are checked or columns, whichever are shorter, and the others to locate an error.
    """
    if c.shape[-1] > c.shape[-2]:
        added = None if added is None else added.expand(c.shape).mT
        ratio, column, row = _worst_element(b.mT, a.mT, added, c.mT)
        return ratio, row, column
    ratio, row = _largest_ratio(ratios(a, b, c, added))
    if ratio <= 1:
        return ratio, row, 0
    added = None if added is None else added.expand(c.shape).mT
    return ratio, row, _largest_ratio(ratios(b.mT, a.mT, c.mT, added))[1]


def _largest_ratio(found: torch.Tensor) -> tuple[float, int]:
    by_row = found.reshape(-1, found.shape[-1]).amax(0)
    ratio, row = torch.stack([by_row.amax(), by_row.argmax().to(by_row.dtype)]).tolist()
    return ratio, int(row)
