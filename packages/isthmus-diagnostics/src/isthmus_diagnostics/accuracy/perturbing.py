"""Operators whose results are unstable: run again with noise on the inputs, in higher precision, and in other orders.

No second job is needed. An operator that turns an error of one unit in the last place of its inputs into thousands is
where two correct devices will differ.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from isthmus_diagnostics.accuracy import dumps
from isthmus_diagnostics.accuracy.checking import choose_calls
from isthmus_diagnostics.accuracy.reading import Recorded
from isthmus_diagnostics.accuracy.replaying import NotReplayed, arguments_of, call_of
from isthmus_diagnostics.debug import reference
from isthmus_diagnostics.debug.call import replace_tensors
from isthmus_diagnostics.debug.intercept import hide_calls
from isthmus_diagnostics.debug.replay import run_on

HEAD = ["operator", "module", "dtype", "noise", "precision", "order", "line"]


class Unstable(NamedTuple):
    """The distance that the results of a call move, relative to their size, in units of their dtype's epsilon.

    Attributes:
        call: the call.
        dtype: of the first result.
        noise: with inputs changed by up to one epsilon of theirs.
        precision: against float64.
        order: with sums in another order: of the elements where they are known to be summed over, else by another
            number of threads.
    """

    call: Recorded
    dtype: str
    noise: float
    precision: float
    order: float

    @property
    def worst(self) -> float:
        """The largest of the three."""
        return max(self.noise, self.precision, self.order)


def perturb_dump(
    folder: Path, pattern: str, calls: int, device: str, seed: int = 0
) -> tuple[list[Unstable], int]:
    """Perturb the calls of a dump.

    Args:
        folder: dump, of tensors; of statistics, inputs are drawn that have the same.
        pattern: operators.
        calls: most calls of each operator.
        device: to run on.
        seed: of the noise.

    Returns:
        The calls with floating point results, the most unstable first; and how many could not be run.
    """
    found, skipped = [], 0
    for rank in dumps.read(folder):
        for call in choose_calls(rank.calls, pattern, calls):
            try:
                with hide_calls():
                    row = _perturb_call(call, device, torch.Generator().manual_seed(seed + call.number))
            except (NotReplayed, reference.NoReference, RuntimeError, TypeError):
                skipped += 1
                continue
            found += [row] if row else []
    return sorted(found, key=lambda row: -row.worst), skipped


def _perturb_call(call: Recorded, device: str, generator: torch.Generator) -> Unstable | None:
    op, arguments = arguments_of(call, drawn=True)
    if why := reference.why_none(call_of(op, arguments)):
        raise NotReplayed(why)
    results = run_on(device, op, arguments)
    index = next((i for i, (_, t) in enumerate(results) if t.is_floating_point() and t.numel()), None)
    if index is None:
        return None
    plain = results[index][1]
    noisy = {
        name: replace_tensors(value, lambda t: _add_noise(t, generator)) for name, value in arguments.items()
    }
    exact = reference.compute_expected(call.operator, arguments).exact
    return Unstable(
        call,
        str(plain.dtype)[6:],
        _distance(plain, run_on(device, op, noisy)[index][1]),
        _distance(plain, exact[index][1]),
        _distance(plain, _in_another_order(device, op, arguments)[index][1]),
    )


def _add_noise(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return (tensor.double() * (1 + torch.finfo(tensor.dtype).eps * noise)).to(tensor.dtype)


# Dimensions that are summed over, of each argument.
_SUMMED = {
    "aten::mm": {"self": 1, "mat2": 0},
    "aten::bmm": {"self": 2, "mat2": 1},
    "aten::addmm": {"mat1": 1, "mat2": 0},
    "aten::baddbmm": {"batch1": 2, "batch2": 1},
    "aten::mv": {"self": 1, "vec": 0},
    "aten::dot": {"self": 0, "tensor": 0},
}
_REDUCTIONS = frozenset(
    ("aten::sum", "aten::mean", "aten::var", "aten::std", "aten::linalg_vector_norm", "aten::logsumexp")
)


def _in_another_order(device: str, op: Any, arguments: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    base = op.name().partition(".")[0]
    if summed := _SUMMED.get(base):
        return run_on(
            device, op, arguments | {name: arguments[name].flip(dim) for name, dim in summed.items()}
        )
    if base in _REDUCTIONS:
        dims = arguments.get("dim")
        dims = list(range(arguments["self"].dim())) if dims is None or dims == [] else dims
        return run_on(device, op, arguments | {"self": arguments["self"].flip(dims)})
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    try:
        return run_on(device, op, arguments)
    finally:
        torch.set_num_threads(threads)


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    x, y = a.double(), b.double()
    finite = x.isfinite() & y.isfinite()
    size = float(x[finite].square().mean().sqrt()) if bool(finite.any()) else 0.0
    if not size:
        return 0.0
    return float((x - y)[finite].abs().max()) / size / torch.finfo(a.dtype).eps


def cells(row: Unstable) -> list[str]:
    """Return the cells of a row of the table."""
    numbers = [f"{value:.3g}" for value in (row.noise, row.precision, row.order)]
    return [row.call.operator, row.call.place.module or "-", row.dtype, *numbers, row.call.at]
