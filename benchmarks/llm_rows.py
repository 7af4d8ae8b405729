"""Rows of the tables of llm_operators.py and llm_operators_gpu.py: an operator, a dtype and a pass."""

import fnmatch
from collections.abc import Callable, Iterator
from typing import Any

import torch
from harness import interleave, ratio
from llm_cases import CASES, Case, Function
from llm_cases_other import CASES as OTHERS

Timed = Callable[[Callable[[], object]], Callable[[], float]]


def _forward(function: Function, inputs: tuple[Any, ...]) -> Callable[[], None]:
    def call() -> None:
        with torch.no_grad():
            function(*inputs)

    return call


def _both(function: Function, inputs: tuple[Any, ...]) -> Callable[[], None]:
    """Forward and backward, with the same gradients of the outputs at every call."""
    leaves = [each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad]

    def outputs() -> list[torch.Tensor]:
        made = function(*inputs)
        return list(made) if isinstance(made, tuple) else [made]

    grads = [torch.randn_like(each) if each.dim() else torch.ones_like(each) for each in outputs()]

    def call() -> None:
        torch.autograd.grad(outputs(), leaves, grads)

    return call


def _limit(
    moved: int, flops: int, dtype: torch.dtype, side: int, device: str
) -> tuple[Callable[[], object], float]:
    """Return a function, and the factor by which its time is multiplied to get the limit."""
    if flops:
        a, b = (torch.randn(side, width, device=device).to(dtype) for width in (side, 2 * side))
        out = torch.empty(side, 2 * side, dtype=dtype, device=device)
        return (lambda: torch.mm(a, b, out=out)), flops / (4 * side**3)
    source = torch.zeros(moved // 2, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return (lambda: target.copy_(source)), 1.0


def chosen(pattern: str, portion: float, device: str = "cpu") -> Iterator[tuple[str, torch.dtype, Case, int]]:
    """Yield operator, dtype, case and pass of each row; rows of a case share its tensors."""
    for name, make in (CASES | OTHERS).items():
        if not fnmatch.fnmatch(name, pattern):
            continue
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            with torch.device(device):  # not while measuring: it costs microseconds in every call
                case = make(dtype, portion)
            for mode in (0,) if case.in_place else (0, 1):
                yield name, dtype, case, mode


def row(
    name: str,
    dtype: torch.dtype,
    case: Case,
    mode: int,
    *,
    rounds: int,
    timed: Timed,
    compiled: bool = True,
    others: dict[str, Function] | None = None,
    side: int = 1024,
    device: str = "cpu",
) -> dict[str, Any]:
    """Measure every side of a case.

    Args:
        name: name of the operator.
        dtype: dtype of its tensors.
        case: its operators and tensors.
        mode: 0 is the forward, 1 forward and backward.
        rounds: measured rounds.
        timed: wraps a function to return the seconds per call.
        compiled: measure PyTorch under torch.compile as well.
        others: other sides, functions of the case's inputs.
        side: size of the square matrices whose product is the limit.
        device: device of the case's tensors.
    """
    make = _forward if mode == 0 or case.in_place else _both
    sides = {"ours": make(case.ours, case.inputs), "eager": make(case.eager, case.inputs)}
    if compiled and not case.in_place:
        torch.compiler.reset()
        sides["compile"] = make(torch.compile(case.eager, dynamic=False), case.inputs)
    sides |= {other: make(function, case.inputs) for other, function in (others or {}).items()}
    limit, factor = _limit(case.moved[mode], case.flops[mode], dtype, side, device)
    peers = {each: timed(function) for each, function in sides.items()}
    times = interleave(peers | {"limit": timed(limit)}, rounds=rounds)
    made = {
        "operator": name,
        "sizes": case.sizes,
        "dtype": str(dtype).removeprefix("torch."),
        "pass": "step" if case.in_place else ("forward", "forward+backward")[mode],
        "ours_ms": times["ours"].median * 1e3,
    }
    for each, goal in zip(("eager", "compile"), case.goals, strict=True):
        made[f"over_{each}"] = ratio(times["ours"], times[each]) if each in times else None
        made[f"goal_{each}"] = goal
    for each in others or {}:
        made[f"over_{each}"] = ratio(times["ours"], times[each])
    return made | {"limit_over_ours": ratio(times["limit"], times["ours"]) * factor}
