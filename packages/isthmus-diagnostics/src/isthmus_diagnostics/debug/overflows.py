"""Find calls that produce NaN or infinity from finite inputs.

Tensors are checked on the host: a chip needs no kernel of its own for it, and a wrong kernel cannot hide an overflow.
"""

import math
from typing import Any

import torch

from isthmus_diagnostics.debug import intercept
from isthmus_diagnostics.debug.call import Call, describe, tensors_of
from isthmus_diagnostics.debug.call_origin import origin
from isthmus_diagnostics.debug.record import Findings


class Overflow:
    """A probe that reports calls with NaN or infinity in a result and none in any input: the producers.

    A literal infinity among the arguments is intended, as in masks: such a call is not reported.

    Args:
        findings: receives the producers. The first one matters; the others most likely follow from it.
    """

    name = "overflow"
    nearest = False

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def around(self, call: Call, proceed: intercept.Proceed) -> Any:
        """Run one call and check its results."""
        where = origin(any(tensor.requires_grad for _, tensor in call.inputs()))
        with intercept.hide_calls():
            # Overwritten inputs must be checked before the call.
            read = [n for n in call.written_in_order if n not in call.out]
            overwritten = [pair for name in read for pair in tensors_of(name, call.arguments[name])]
            was_finite = all(is_finite(tensor) for _, tensor in overwritten)
            ranges = {name: range_of(tensor) for name, tensor in overwritten}
        returned = proceed()
        with intercept.hide_calls():
            self.findings.count(call.name)
            bad = [(name, t) for name, t in call.results(returned) if not is_finite(t)]
            if bad and was_finite and _has_finite_inputs(call):
                ranges = {name: ranges.get(name) or range_of(t) for name, t in call.inputs()}
                self._report(call, bad, ranges, where)
        return returned

    def _report(
        self, call: Call, bad: list[tuple[str, torch.Tensor]], ranges: dict[str, str], where: Any
    ) -> None:
        name, tensor = bad[0][0], _on_host(bad[0][1])
        inputs = {label: f"{describe(t)} {ranges[label]}".strip() for label, t in call.inputs()}
        nan, inf = int(tensor.isnan().sum()), int(tensor.isinf().sum())
        what = " and ".join([f"{nan} NaN"] * bool(nan) + [f"{inf} infinite"] * bool(inf))
        first = "" if self.findings.failed else "first producer: "
        listed = ", ".join(f"{label} {text}" for label, text in list(inputs.items())[:4])
        row = {
            "operator": call.name,
            "line": where.line,
            "library": where.library,
            "backward": where.backward,
            "node": where.node,
            "inputs": inputs,
            "result": name,
            "nan": nan,
            "infinite": inf,
            "text": f"{first}{call.name} at {where}: {what} of {tensor.numel()} elements; inputs: {listed}",
        }
        self.findings.verdict(row, failed=True)


def _has_finite_inputs(call: Call) -> bool:
    for name, value in call.arguments.items():
        if name in call.written:  # checked before the call
            continue
        items = value if isinstance(value, (tuple, list)) else (value,)
        if any(isinstance(item, (float, complex)) and not _is_finite_number(item) for item in items):
            return False
        if not all(is_finite(tensor) for _, tensor in tensors_of(name, value)):
            return False
    return True


def _is_finite_number(value: complex) -> bool:
    return math.isfinite(value.real) and math.isfinite(value.imag)


def is_finite(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has neither NaN nor infinity; always True for integers."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout != torch.strided:
        return True
    return bool(_on_host(tensor).isfinite().all())


def range_of(tensor: torch.Tensor) -> str:
    """Return the range of a tensor, such as ``-1.5..3``; "" if it is empty or not comparable."""
    if (
        tensor.numel() == 0
        or tensor.is_complex()
        or tensor.dtype == torch.bool
        or tensor.layout != torch.strided
    ):
        return ""
    low, high = _on_host(tensor).aminmax()
    return f"{low.item():.6g}..{high.item():.6g}"


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu")
