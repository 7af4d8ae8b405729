"""Triton kernels of the script's own.

Where the CPU addresses the device's memory (the host chip), Triton's interpreter runs them on that memory, without
copies. An accelerator whose maker has a Triton backend runs them natively. On others a launch raises one line.
"""

import sys
from typing import Any

import torch

import isthmus
from isthmus._support.patches import Scope

_NVIDIA_AND_AMD = ("nvidia", "amd")  # the backends in Triton's own package: their devices are CUDA's


def install(scope: Scope, device_type: str) -> None:
    """Make kernels run on this device, or refuse them at launch. Called once Triton is imported."""
    backend = _backend()
    if backend is not None:
        module: Any = sys.modules[
            "triton.runtime.driver"
        ]  # the package's attribute is an object of that module
        reason = "two backends answer: CUDA's, through torch.cuda, and the accelerator's"
        scope.set(module.driver, "_active", backend.driver(), "triton.runtime.driver.active", reason)
    elif _is_host_addressable(device_type):
        from isthmus.shim.triton import arithmetic, compiled, host_driver, launch, libdevice, rewritten

        rewritten.install(scope)
        launch.install(scope)
        host_driver.install(scope)
        arithmetic.install(scope)
        libdevice.install(scope)
        compiled.install(scope)
    else:
        _refuse(scope, device_type)


def _backend() -> Any:
    """The backend of the accelerator's maker (entry point ``triton.backends``) whose driver is active, or None."""
    from triton.backends import backends

    others = (each for name, each in backends.items() if name not in _NVIDIA_AND_AMD)
    return next((each for each in others if each.driver.is_active()), None)


def _is_host_addressable(device_type: str) -> bool:
    return (
        isthmus.status().registered
        and device_type == torch._C._get_privateuse1_backend_name()
        and torch.get_device_module(device_type).is_host_addressable()
    )


def _refuse(scope: Scope, device_type: str) -> None:
    """Raise NotImplementedError when a kernel is launched."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"Triton kernel {self.__name__!r} cannot run on {device_type}: no Triton backend for it is installed; "
            "call a PyTorch operator, or register the operator with the driver's kernel library"
        )

    scope.replace(
        "triton.runtime.jit.JITFunction.run", lambda _: run, "no Triton backend for the accelerator"
    )
