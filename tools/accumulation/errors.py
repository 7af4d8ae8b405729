"""Measure the errors of 16-bit results, operator by operator.

The samples of op_db and their gradients run on the CPU in bfloat16 and float16. Each operator below autograd is
called again with the same inputs in float64, and on the chip.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections import defaultdict
from functools import partial
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from tools.opinfo.runner import gradients
from tools.opinfo.twin import tensors_of, tree_map

DTYPES = (torch.bfloat16, torch.float16)
SAMPLES = 12  # of each operator and dtype
# Half a spacing is the error of rounding once. Float32, in which sums are made, adds a little.
ROUNDED_ONCE = 0.51


def spacings(found: torch.Tensor, single: torch.Tensor, exact: torch.Tensor, largest: float) -> float:
    """Return the largest error of 16-bit numbers, in spacings between neighbours of the exact ones.

    Small numbers beside large ones are measured by a sixteenth of the largest, as terms of theirs may cancel. What
    float32 may add is taken off: its own error, and the rounding of intermediate results as large as the largest
    number of the call.
    """
    kind = torch.finfo(found.dtype)
    usable = found.isfinite() & single.isfinite() & exact.isfinite()
    if not usable.any():
        return 0.0
    number, single, exact = found.double()[usable], single.double()[usable], exact[usable]
    size = exact.abs().clamp_min(max(kind.smallest_normal, float(exact.abs().max()) / 16))
    spacing = torch.ldexp(torch.full_like(size, kind.eps), torch.frexp(size)[1] - 1)
    float32 = (single - exact).abs() + 8 * torch.finfo(torch.float32).eps * largest
    return float((((number - exact).abs() - float32) / spacing).max())


class Errors(TorchDispatchMode):
    """Compares each operator's 16-bit results with float64's, on the CPU and on the chip."""

    def __init__(self) -> None:
        super().__init__()
        self.worst: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self.uncompared: dict[str, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator; compare its results if they are new and of 16 bits."""
        kwargs = kwargs or {}
        given = tree_map(_copy, (args, kwargs)) if func._schema.is_mutable else (args, kwargs)
        results = func(*args, **kwargs)
        if _is_judged(func, given, results):
            self._compare(func, *given, results)
        return results

    def _compare(self, func: Any, args: Any, kwargs: Any, results: Any) -> None:
        name = func._schema.name.partition("::")[2].removesuffix("_")
        try:
            single, exact, chip = (
                func(*tree_map(change, args), **tree_map(change, kwargs))
                for change in (partial(_widen, torch.float32), partial(_widen, torch.float64), _to_chip)
            )
        except (RuntimeError, NotImplementedError) as error:
            self.uncompared[name] = str(error).splitlines()[0]
            return
        worst = self.worst[name]
        numbers = [
            t.abs().max().double() for t in tensors_of((args, exact)) if t.is_floating_point() and t.numel()
        ]
        largest = max((float(each) for each in numbers if each.isfinite()), default=0.0)
        for on_cpu, *wider, on_chip in zip(*map(tensors_of, (results, single, exact, chip)), strict=True):
            if on_cpu.dtype in DTYPES:
                worst[0] = max(worst[0], spacings(on_cpu, *wider, largest))
                worst[1] = max(worst[1], spacings(on_chip.cpu(), *wider, largest))


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _widen(wide: torch.dtype, value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return wide if value in DTYPES else value
    if isinstance(value, torch.Tensor):
        return value.to(wide, copy=True) if value.is_floating_point() else value.clone()
    return value


def _to_chip(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("chip")
    if isinstance(value, torch.Tensor):
        return value.clone().to("chip")
    return value


def _is_judged(func: Any, given: Any, results: Any) -> bool:
    made = [t for t in tensors_of(results) if t.dtype in DTYPES and t.layout == torch.strided and t.numel()]
    inputs = [t for t in tensors_of(given) if t.layout == torch.strided]
    return (
        bool(made)
        and bool(inputs)
        and len(inputs) == len(tensors_of(given))
        and func.namespace == "aten"
        and not func.is_view
        and torch.Tag.nondeterministic_seeded not in func.tags
        and torch.Tag.pointwise not in func.tags
        and "empty" not in func.__name__
    )


def run_samples(op: Any, dtype: torch.dtype, errors: Errors) -> None:
    """Run an operator's samples on the CPU, forward and backward."""
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    # Not sample_inputs(), which notes the stack of each sample.
    samples = op.sample_inputs_func(op, torch.device("cpu"), dtype, differentiable)
    for sample in itertools.islice(samples, SAMPLES):
        with errors:
            outputs = op.op(sample.input, *sample.args, **sample.kwargs)
            leaves = [t for t in tensors_of((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
            if leaves and any(t.requires_grad for t in tensors_of(outputs)):
                gradients(outputs, leaves)


def measure() -> Errors:
    """Run all of op_db, with progress on stderr."""
    errors = Errors()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, op in enumerate(op_db):
            if number % 100 == 0:
                print(f"accumulation: {number} of {len(op_db)} operators", file=sys.stderr, flush=True)
            for dtype in DTYPES:
                if dtype not in op.supported_dtypes("cpu"):
                    continue
                torch.manual_seed(0)
                try:
                    run_samples(op, dtype, errors)
                except (RuntimeError, NotImplementedError, AssertionError) as error:  # the last: only on CUDA
                    errors.uncompared[op.full_name] = str(error).splitlines()[0]
    return errors
