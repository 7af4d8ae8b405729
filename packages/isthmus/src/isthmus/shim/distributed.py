"""Proxies for ``torch.distributed``: ``nccl`` means the accelerator's backend."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from isthmus.shim import symmetric_memory
from isthmus.shim.accelerator import Accelerator
from isthmus.shim.cuda_differences import called_by_pytorch
from isthmus_common.patches import Scope

_C10D = "torch.distributed.distributed_c10d"
_TAKES_BACKEND = (
    "init_process_group",
    "new_group",
    "split_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
)


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Translate backend and device names passed to c10d, and report the backend as ``nccl``."""
    if not torch.distributed.is_available():
        return
    from isthmus.shim import process_group  # its base class needs c10d

    for name in _TAKES_BACKEND:
        make = functools.partial(_takes_backend, accelerator)
        for module in ("torch.distributed", _C10D):
            scope.replace(f"{module}.{name}", make, "backend='nccl' is the accelerator's backend")
    scope.replace(
        f"{_C10D}._new_group_with_tag",
        functools.partial(_takes_backend, accelerator),
        "backend='nccl' is the accelerator's backend",
    )
    _answer_backend(scope, accelerator)
    scope.replace(
        "torch.distributed.is_nccl_available",
        lambda original: lambda: not called_by_pytorch() or original(),
        "scripts choose their backend with it",
    )
    scope.replace(
        "torch.distributed.is_backend_available",
        lambda original: lambda backend: original(accelerator.backend(backend)),
        "'nccl' is the accelerator's backend",
        expects=("backend",),
    )
    process_group.install(scope, accelerator)
    _device_mesh(scope, accelerator)
    symmetric_memory.install(scope)


def _takes_backend(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        if isinstance(bound.arguments.get("backend"), str):
            bound.arguments["backend"] = accelerator.backend(bound.arguments["backend"])
        return original(*bound.args, **bound.kwargs)

    return function


def _answer_backend(scope: Scope, accelerator: Accelerator) -> None:
    """Let ``get_backend()`` return ``nccl``, except to c10d itself."""

    def for_all(original: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(original)
        def get_backend(group: Any = None) -> str:
            return accelerator.cuda_backend(original(group))

        return get_backend

    def for_scripts(original: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(original)
        def get_backend(group: Any = None) -> str:
            found = original(group)
            caller: str = sys._getframe(1).f_globals.get("__name__", "")
            return found if caller.startswith("torch.") else accelerator.cuda_backend(found)

        return get_backend

    reason = "the accelerator's backend reads as 'nccl'"
    for module, make in (("torch.distributed", for_all), (_C10D, for_scripts)):
        scope.replace(f"{module}.get_backend", make, reason, expects=("group",))


def _device_mesh(scope: Scope, accelerator: Accelerator) -> None:
    def first(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
            return original(accelerator.name(device_type), *args, **kwargs)

        return init_device_mesh

    def second(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
            original(self, accelerator.name(device_type), *args, **kwargs)

        return init

    reason = "device_type may be 'cuda'"
    for module in ("torch.distributed", "torch.distributed.device_mesh"):
        scope.replace(f"{module}.init_device_mesh", first, reason, expects=("device_type",))
    scope.replace(
        "torch.distributed.device_mesh.DeviceMesh.__init__", second, reason, expects=("self", "device_type")
    )
