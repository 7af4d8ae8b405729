"""Triton kernels for CUDA devices and for chips with a Triton backend; Triton is imported on the first call of one.

On the host chip the backend is the package isthmus-triton, and the fused CPU kernels come first. Under
``TRITON_INTERPRET=1`` Triton interprets the kernels on CPU tensors (slow) and ``use("rms_norm", "triton")`` selects
them.
"""

import importlib.metadata
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from isthmus.ops.cpu import floats
from isthmus.ops.registration import Implementation, Operator, first_tensor, operators

_FAMILIES = {
    "norm": ("rms_norm", "add_rms_norm", "rms_norm_backward"),
    "activation": ("swiglu", "swiglu_backward"),
    "rotary": ("rotary", "rotary_"),
    "attention": ("attention", "attention_backward"),
    "paged_attention": ("paged_attention", "cache_write"),
    "optimizer": ("adamw_",),
    "softmax": ("scaled_masked_softmax", "scaled_masked_softmax_backward"),
    "cross_entropy": ("cross_entropy", "cross_entropy_backward", "cross_entropy_backward_"),
    "linear_cross_entropy": ("linear_cross_entropy",),
}


def is_interpreted() -> bool:
    """Whether Triton interprets its kernels, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def why_unavailable() -> str:
    """Return why the kernels cannot run in this process, or "". Does not import Triton."""
    if find_spec("triton") is None:
        return "Triton is not installed (pip install 'isthmus[triton]')"
    if is_interpreted() or torch.cuda.is_available():
        return ""
    from isthmus.drivers.generators.triton import vendor_backend

    return "" if vendor_backend() is not None else "no device with a Triton backend available"


def add(operator: Operator, family: str) -> None:
    """Register ``isthmus.ops.triton.<family>.<name>`` as the ``triton`` implementation of an operator.

    The function takes the operator's arguments. An optional function ``refuses_<name>`` returns why it does not
    support them, or "". Calls whose first tensor is empty use the composite.
    """

    def refuses(*arguments: Any) -> str:
        return why_unavailable() or floats(*arguments) or _load(family, operator.name)[1](*arguments)

    def call(*arguments: Any) -> Any:
        first = first_tensor(arguments)
        if first is arguments[0] and not first.numel():
            return operator.composite(*arguments)
        launch = _load(family, operator.name)[0]
        if first.is_cpu or first.get_device() == torch.accelerator.current_device_index():
            return launch(*arguments)
        with torch.accelerator.device_index(first.get_device()):
            return launch(*arguments)

    operator.add(Implementation("triton", call, _serves, refuses))


def _serves(device: torch.device) -> bool:
    if device.type == "cpu":
        return is_interpreted()
    accelerator = torch.accelerator.current_accelerator()
    return device.type == "cuda" or (accelerator is not None and device.type == accelerator.type)


@cache
def _load(family: str, name: str) -> tuple[Callable[..., Any], Callable[..., str]]:
    """The function that launches an operator's kernels, and why it does not support arguments."""
    module = import_module(f"isthmus.ops.triton.{family}")
    return getattr(module, name), getattr(module, f"refuses_{name}", lambda *_: "")


def family(name: str) -> str:
    """The module with the kernels of an operator."""
    return next(module for module, names in _FAMILIES.items() if name in names)


def register() -> None:
    """Register the kernels, if there is a Triton backend for a device that PyTorch supports."""
    of_gpus = torch.version.cuda is not None or torch.version.hip is not None
    if not (of_gpus or is_interpreted() or importlib.metadata.entry_points(group="triton.backends")):
        return
    known = operators()
    for family, names in _FAMILIES.items():
        for name in names:
            add(known[name], family)
