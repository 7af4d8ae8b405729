"""Triton kernels of the script's own: the accelerator's Triton backend compiles them.

On the host chip the backend is the package isthmus-triton. Without a backend a launch raises one line.
"""

import sys
from typing import Any

import torch

from isthmus.drivers.generators.triton import vendor_backend
from isthmus_common.patches import Scope


def install(scope: Scope, device_type: str) -> None:
    """Make kernels run on this device, or refuse them at launch. Called once Triton is imported."""
    backend = vendor_backend()
    if backend is None:
        _refuse(scope, device_type)
        return
    # the package's attribute is an object of that module
    module: Any = sys.modules["triton.runtime.driver"]
    reason = "two backends answer: CUDA's, through torch.cuda, and the accelerator's"
    scope.set(module.driver, "_active", backend.driver(), "triton.runtime.driver.active", reason)
    _set_aside_those_of_gpus(scope, reason)


def _set_aside_those_of_gpus(scope: Scope, reason: str) -> None:
    """Remove Triton's own backends, which take ``torch.cuda`` for a GPU."""
    from triton.backends import backends

    others = {name: backends.pop(name) for name in ("nvidia", "amd") if name in backends}
    scope.record("triton.backends.backends", reason, lambda: backends.update(others))


def _refuse(scope: Scope, device_type: str) -> None:
    """Raise NotImplementedError when a kernel is launched."""
    is_addressable = getattr(torch.get_device_module(device_type), "is_host_addressable", lambda: False)
    remedy = (
        "run `pip install isthmus-triton`"
        if is_addressable()
        else "call a PyTorch operator, or register the operator with the driver's kernel library"
    )

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"Triton kernel {self.__name__!r} cannot run on {device_type}: no Triton backend for it is installed; "
            f"{remedy}"
        )

    scope.replace(
        "triton.runtime.jit.JITFunction.run", lambda _: run, "no Triton backend for the accelerator"
    )
