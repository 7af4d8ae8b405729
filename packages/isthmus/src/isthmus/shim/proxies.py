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
    nondeterminism,
    profiling,
    serialization,
    tensor_methods,
    torchscript,
    warning_places,
)
from isthmus.shim.accelerator import Accelerator
from isthmus_common.patches import Scope, attempt


def enter(scope: Scope, accelerator: Accelerator) -> None:
    """Apply every proxy to PyTorch; the scope undoes them."""
    custom_operators.install(scope, accelerator)
    dispatch_keys.install(scope, accelerator)
    devices.install(scope, accelerator)
    tensor_methods.install(scope, accelerator)
    cuda_module.install(scope, accelerator)
    serialization.install(scope, accelerator)
    distributed.install(scope, accelerator)
    cpu.install(scope, accelerator)
    answers.install(scope, accelerator)
    nondeterminism.install(scope, accelerator)
    for install, loss in (
        (lambda: torchscript.install(scope, accelerator), "TorchScript that names CUDA"),
        (lambda: data_parallel.install(scope, accelerator), "torch.nn.DataParallel"),
        (lambda: profiling.install(scope, accelerator), "CUDA's activities in torch.profiler"),
        (lambda: attention.install(scope), "the choice of attention kernels"),
        (lambda: extensions.install(scope, accelerator), "C++ extensions without the CUDA toolkit"),
        (lambda: warning_places.install(scope), "lines of the script in warnings"),
    ):
        attempt(install, loss)
