"""Implementations by Triton kernels, for CUDA devices; Triton is imported at the first call that takes one.

They are registered where PyTorch is built for such devices, and under ``TRITON_INTERPRET=1``: there Triton runs its
kernels on CPU tensors, slowly, and ``use("rms_norm", "triton")`` takes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from isthmus.ops.operators import Implementation, Operator, operators

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Elements of a row that one program holds at once.
WIDEST_ROW = 65536
_FAMILIES = {
    "norm": ("rms_norm", "add_rms_norm", "rms_norm_backward"),
    "activation": ("swiglu", "swiglu_backward"),
    "rotary": ("rotary", "rotary_"),
    "attention": ("attention", "attention_backward"),
    "optimizer": ("adamw_",),
    "softmax": ("scaled_masked_softmax", "scaled_masked_softmax_backward"),
    "cross_entropy": ("cross_entropy", "cross_entropy_backward", "cross_entropy_backward_"),
    "linear_cross_entropy": ("linear_cross_entropy",),
}


def interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def unavailable() -> str:
    """Why the kernels cannot run in this process, or ""; Triton is not imported for that."""
    if find_spec("triton") is None:
        return "Triton is not installed (pip install 'isthmus[triton]')"
    if not interpreted() and not torch.cuda.is_available():
        return "there is no CUDA device"
    return ""


def floats(*arguments: Any) -> str:
    """Refuses a call whose first tensor is of a dtype that no kernel is written for."""
    kind = next(each.dtype for each in arguments if isinstance(each, torch.Tensor))
    return "" if kind in FLOATS else f"no kernel for {kind}"


def add(operator: Operator, family: str) -> None:
    """Register the function of the operator's name in ``isthmus.ops.triton.<family>`` as its ``triton``.

    The function takes the operator's arguments; one called ``refuses_<name>`` beside it may refuse them. Calls whose
    first tensor has no elements are the composite's.
    """

    def refuses(*arguments: Any) -> str:
        if reason := unavailable() or floats(*_flat(arguments)):
            return reason
        check = getattr(_loaded(family), f"refuses_{operator.name}", None)
        return check(*arguments) if check else ""

    operator.add(Implementation("triton", _launched(operator, family), _serves, refuses))


def _launched(operator: Operator, family: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        first = next(each for each in _flat(arguments) if isinstance(each, torch.Tensor))
        if not isinstance(arguments[0], list | tuple) and not first.numel():
            return operator.composite(*arguments)
        with torch.cuda.device(first.device) if first.is_cuda else nullcontext():
            return getattr(_loaded(family), operator.name)(*arguments)

    return call


def _flat(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(arguments[0]) if isinstance(arguments[0], list | tuple) else arguments


def _serves(device: torch.device) -> bool:
    return device.type == "cuda" or (device.type == "cpu" and interpreted())


@cache
def _loaded(family: str) -> ModuleType:
    return import_module(f"isthmus.ops.triton.{family}")


def family(name: str) -> str:
    """The module that has the kernels of an operator."""
    return next(module for module, names in _FAMILIES.items() if name in names)


def register() -> None:
    """Add the kernels to the operators, if tensors that they serve can exist in this process."""
    if torch.version.cuda is None and torch.version.hip is None and not interpreted():
        return
    known = operators()
    for family, names in _FAMILIES.items():
        for name in names:
            add(known[name], family)
