"""Fused CPU kernels (csrc/kernels), for CPU tensors and for chips whose memory the CPU can address."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from isthmus import binaries
from isthmus.ops.registration import Implementation, Operator, addressed_by_cpu, first_tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Capabilities that PyTorch reports. A machine with one can run code compiled for those before it.
_CAPABILITIES = ("NO AVX", "DEFAULT", "AVX2", "AVX512")


@cache
def why_unavailable() -> str:
    """Return why the kernels cannot run in this process, or "". Loads them on the first call."""
    try:
        found = binaries.find(torch.__version__)
    except binaries.NotBuilt as error:
        return f"the CPU kernels: {error}"
    built, here = found.kernels, torch.backends.cpu.get_cpu_capability()
    if built != "DEFAULT" and (here not in _CAPABILITIES or _rank(here) < _rank(built)):
        return f"the CPU kernels are built for {built} and this process has {here}; run `isthmus build`"
    torch.ops.load_library(str(found.folder / binaries.KERNELS))
    return ""


def _rank(capability: str) -> int:
    return _CAPABILITIES.index(capability)


def floats(*arguments: Any) -> str:
    """Return why no kernel supports the dtype of the first tensor, or ""."""
    kind = first_tensor(arguments).dtype
    return "" if kind in FLOATS else f"no kernel for {kind}"


def add(operator: Operator, refuses: Callable[..., str] = floats) -> None:
    """Register ``isthmus_cpu::<name>`` as the ``cpu`` implementation of an operator, if the kernels can run."""
    reason = why_unavailable()
    call = _refuse if reason else getattr(torch.ops.isthmus_cpu, operator.name).default
    checked = (lambda *_: reason) if reason else refuses
    operator.add(Implementation("cpu", call, lambda device: addressed_by_cpu(device.type), checked))


def _refuse(*_: Any) -> Any:
    raise AssertionError("this implementation is unavailable and must not be chosen")
