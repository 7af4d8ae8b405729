"""Installs all proxies of the shim, in dependency order."""

from isthmus.shim import (
    answers,
    attention,
    cpu,
    cuda_module,
    custom_operators,
    data_parallel,
    devices,
    dispatch_keys,
    distributed,
    extensions,
    profiling,
    serialization,
    tensor_methods,
    torchscript,
    warning_places,
)
from isthmus.shim.accelerator import Accelerator
from isthmus_common.patches import Scope


def enter(scope: Scope, accelerator: Accelerator) -> None:
    """Apply every proxy to PyTorch; the scope undoes them."""
    before = answers.set_accelerator(accelerator.type)
    scope.record(
        "isthmus.shim.answers", "sets the device type for rewritten source", lambda: _restore(before)
    )
    custom_operators.install(scope, accelerator)
    dispatch_keys.install(scope, accelerator)
    devices.install(scope, accelerator)
    tensor_methods.install(scope, accelerator)
    cuda_module.install(scope, accelerator)
    serialization.install(scope, accelerator)
    distributed.install(scope, accelerator)
    torchscript.install(scope, accelerator)
    data_parallel.install(scope, accelerator)
    profiling.install(scope, accelerator)
    attention.install(scope)
    extensions.install(scope, accelerator)
    cpu.install(scope, accelerator)
    warning_places.install(scope)


def _restore(before: str) -> None:
    answers.set_accelerator(before)
