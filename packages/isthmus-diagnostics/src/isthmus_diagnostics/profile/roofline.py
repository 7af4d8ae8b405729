"""Floating-point operations and bytes of operators from their shapes, against what the device attains."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from isthmus_diagnostics.profile.host import Host
from isthmus_diagnostics.profile.intervals import length, union
from isthmus_diagnostics.profile.steps import Step
from isthmus_diagnostics.profile.trace import Event

_WIDTHS = {
    **{"float": 4, "int": 4, "double": 8, "long int": 8, "c10::BFloat16": 2, "c10::Half": 2},
    **{"bool": 1, "unsigned char": 1, "signed char": 1, "short int": 2, "c10::complex<float>": 8},
}
_ATTENTION = re.compile(r"scaled_dot_product_\w*attention\w*|flash_attention|fusion_attention")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function")
# Within the backward pass, these are only called by the recomputation of a checkpoint.
_FORWARD = re.compile(r"^aten::(linear|matmul|addmm|scaled_dot_product_attention)$")


@dataclass(frozen=True)
class Limits:
    """The limits that a device attains."""

    flops: dict[str, float]
    """Operations per second of a matrix product, by dtype as a trace names it."""
    bandwidth: float
    """Bytes per second of a copy on the device, read and written."""


@dataclass
class Work:
    """The calls of one operator with the same shapes that launched device work themselves."""

    name: str
    shapes: str
    dtype: str
    calls: int = 0
    time: float = 0.0
    """Device time in microseconds."""
    flops: float = 0.0
    bytes: float = 0.0
    recomputed: float = 0.0
    """Part of flops that a checkpoint recomputed in the backward pass."""

    def attainable_time(self, limits: Limits) -> float:
        """Return the time that the device would need, in microseconds."""
        rate = limits.flops.get(self.dtype, max(limits.flops.values()))
        return 1e6 * max(self.flops / rate, self.bytes / limits.bandwidth)


def works(host: Host, device: list[Event], steps: list[Step]) -> list[Work]:
    """Return the operators within steps that launched device work, by shape, the longest first."""
    found: dict[tuple[str, str, str], Work] = {}
    for index, launched in _launchers(host, device).items():
        event = host.events[index]
        if not any(step.start <= event.start < step.end for step in steps):
            continue
        shapes, dtype = _shapes(event), _dtype(event)
        work = found.setdefault((event.name, shapes, dtype), Work(event.name, shapes, dtype))
        flops = _flops(event)
        work.calls += 1
        work.time += length(union((kernel.start, kernel.end) for kernel in launched))
        work.flops += flops
        work.bytes += _bytes(event)
        work.recomputed += flops if flops and _is_recomputed(host, index) else 0.0
    return sorted(found.values(), key=lambda work: -work.time)


def _launchers(host: Host, device: list[Event]) -> dict[int, list[Event]]:
    """Return device work by the innermost operator that launched it."""
    found: dict[int, list[Event]] = {}
    for kernel in device:
        launch = host.launch(kernel)
        for index in () if launch is None else (launch, *host.ancestors(launch)):
            if "Input Dims" in host.events[index].args:
                found.setdefault(index, []).append(kernel)
                break
    return found


def _is_recomputed(host: Host, index: int) -> bool:
    forward = bool(_FORWARD.search(host.events[index].name))
    for outer in host.ancestors(index):
        name = host.events[outer].name
        if _BACKWARD.search(name):
            return forward
        forward = forward or bool(_FORWARD.search(name))
    return False


def _dims(event: Event) -> list[list[int]]:
    """Return the shapes of the tensors among the inputs; a list of tensors counts as its tensors."""
    found: list[list[int]] = []
    for dims, kind in zip(event.args.get("Input Dims", []), event.args.get("Input type", []), strict=False):
        if kind == "TensorList" or (dims and isinstance(dims[0], list)):
            found += [list(map(int, inner)) for inner in dims if isinstance(inner, list)]
        elif kind in _WIDTHS:
            found.append(list(map(int, dims)))
    return found


def _shapes(event: Event) -> str:
    return " ".join("x".join(map(str, dims)) for dims in _dims(event) if dims)[:60]


def _dtype(event: Event) -> str:
    return next((kind for kind in event.args.get("Input type", []) if kind in _WIDTHS), "float")


def _flops(event: Event) -> float:
    dims = _dims(event)
    name = event.name.removeprefix("aten::")
    if name in ("mm", "bmm") and len(dims) > 1 and dims[0] and dims[1]:
        return 2.0 * math.prod(dims[0]) * dims[1][-1]
    if name in ("addmm", "baddbmm", "addbmm") and len(dims) > 2 and dims[1] and dims[2]:
        return 2.0 * math.prod(dims[1]) * dims[2][-1]
    if _ATTENTION.search(name):
        return _attention_flops(name, [shape for shape in dims if len(shape) == 4])
    return 0.0


def _attention_flops(name: str, shapes: list[list[int]]) -> float:
    """Return the operations of attention over (batch, heads, length, size), not counting that it may be causal."""
    if "backward" in name:
        shapes = shapes[1:]  # the first is the gradient
    if len(shapes) < 3:
        return 0.0
    (batch, heads, length, size), key, value = shapes[:3]
    forward = 2.0 * batch * heads * length * key[2] * (size + value[3])
    return forward * (2.5 if "backward" in name else 1.0)


def _bytes(event: Event) -> float:
    """Return the bytes of the inputs and of an output as large as the largest of them, or as the product's."""
    dims = _dims(event)
    width = _WIDTHS[_dtype(event)]
    sizes = [math.prod(shape) for shape in dims]
    written = max(sizes, default=0)
    if event.name in ("aten::mm", "aten::bmm") and len(dims) > 1 and dims[1]:
        written = sizes[0] // max(1, dims[0][-1]) * dims[1][-1]
    return float(width * (sum(sizes) + written))


def utilization(found: list[Work], steps: list[Step], peak: float) -> tuple[float, float]:
    """Return MFU and HFU of the steps: useful and executed operations per second, over the peak."""
    seconds = sum(step.end - step.start for step in steps) / 1e6
    executed = sum(work.flops for work in found)
    useful = executed - sum(work.recomputed for work in found)
    return useful / seconds / peak, executed / seconds / peak


def probe(seconds: float = 0.1) -> Limits:
    """Measure the current accelerator for about a second. Raises RuntimeError if there is none."""
    import torch

    if not torch.accelerator.is_available():
        raise RuntimeError("no accelerator to measure; omit --probe, or give --peak-tflops")
    device = torch.accelerator.current_accelerator()
    source = torch.ones(1 << 24, device=device)
    target = torch.empty_like(source)
    bandwidth = 2 * source.nbytes / fastest_time(lambda: target.copy_(source), seconds)
    flops = {}
    for name, dtype in (("float", torch.float32), ("c10::BFloat16", torch.bfloat16)):
        matrix = torch.ones(1024, 1024, device=device, dtype=dtype)
        flops[name] = 2 * 1024**3 / fastest_time(lambda matrix=matrix: torch.mm(matrix, matrix), seconds)  # type: ignore[misc]
    return Limits(flops, bandwidth)


def fastest_time(call: Callable[[], Any], seconds: float) -> float:
    """Return the shortest of the times of a call with the device's work, in seconds.

    Args:
        call: called three times or more.
        seconds: least time of all calls together.
    """
    import torch

    call()
    torch.accelerator.synchronize()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        start = time.perf_counter()
        call()
        torch.accelerator.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)
