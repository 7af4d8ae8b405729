"""Triton kernels of the script's own.

Where the CPU addresses the device's memory (the host chip), Triton's interpreter runs them on that memory, without
copies. An accelerator whose maker has a Triton backend runs them natively. On others a launch raises one line.
"""

import sys
from typing import Any

import torch

import isthmus
from isthmus_common.patches import Scope


def install(scope: Scope, device_type: str) -> None:
    """Make kernels run on this device, or refuse them at launch. Called once Triton is imported."""
    from triton.backends.compiler import GPUTarget

    from isthmus.drivers.generators.triton import vendor_backend

    backend = vendor_backend()
    if backend is not None:
        module: Any = sys.modules[
            "triton.runtime.driver"
        ]  # the package's attribute is an object of that module
        reason = "two backends answer: CUDA's, through torch.cuda, and the accelerator's"
        scope.set(module.driver, "_active", backend.driver(), "triton.runtime.driver.active", reason)
        if backend.compiler.supports_target(
            GPUTarget("cuda", 80, 32)
        ):  # it stands for a GPU that is not there
            from isthmus.shim.triton import torch_compile

            supports = "triton.backends.nvidia.compiler.CUDABackend.supports_target"
            scope.replace(supports, lambda _: lambda target: False, reason)
            torch_compile.install(scope)
    elif _is_host_addressable(device_type):
        from isthmus.shim.triton import (
            arithmetic,
            host_driver,
            interpreter_source,
            launch,
            libdevice,
            torch_compile,
        )

        interpreter_source.install(scope)
        launch.install(scope)
        host_driver.install(scope)
        arithmetic.install(scope)
        libdevice.install(scope)
        torch_compile.install(scope)
    else:
        _refuse(scope, device_type)


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
