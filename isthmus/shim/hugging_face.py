"""Hugging Face's libraries on the chip without the shim: ``ACCELERATE_TORCH_DEVICE=chip`` is all that they need.

They train in float32 by themselves. What they allow on device types of a list only (float16, bfloat16 in ``Trainer``,
several processes) is allowed on the chip when that variable names it; nothing else of them is touched.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from isthmus._support.after_import import AfterExecution, AfterImport, is_being_executed
from isthmus._support.patches import Scope

VARIABLE = "ACCELERATE_TORCH_DEVICE"

_scope = Scope("hugging_face")


def install() -> None:
    """Patch each library once it is imported; imports none."""
    for module, patch in (
        ("accelerate.state", _state),
        ("accelerate.accelerator", _accelerator),
        ("safetensors.torch", _safetensors),
        ("transformers.utils.import_utils", _transformers),
    ):
        if module not in sys.modules:
            _wait(module, AfterImport(module, patch))
        elif is_being_executed(module):  # it has come to its own `import torch`
            _wait(module, AfterExecution(module, patch))
        else:
            patch()


def uninstall() -> None:
    """Give the libraries back what is theirs."""
    _scope.undo()


def _wait(module: str, finder: AfterImport | AfterExecution) -> None:
    sys.meta_path.insert(0, finder)
    _scope.record(
        f"sys.meta_path: {module}",
        f"{VARIABLE}=chip: the library is told of the chip when it is imported",
        lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None,
    )


def _state() -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def prepare(self: Any, cpu: bool = False, *args: Any, **kwargs: Any) -> Any:
            backend, kind = original(self, cpu, *args, **kwargs)
            if cpu or backend is not None or "LOCAL_RANK" not in os.environ:
                return backend, kind
            return _join(self), type(kind).MULTI_GPU

        return prepare

    _scope.replace(
        "accelerate.state.PartialState._prepare_backend",
        make,
        "it knows the process groups of some devices only, and lets each rank of others train alone",
        expects=("self", "cpu"),
    )


def _join(state: Any) -> str:
    """Give this rank its device; returns the name of the process group's backend."""
    import torch

    index = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    state.device = torch.device(_device_type(), index)
    return torch.distributed.get_default_backend_for_device(state.device)


def _device_type() -> str:
    return os.environ[VARIABLE].partition(":")[0]


def _accelerator() -> None:
    from isthmus.shim import libraries

    libraries.allow_mixed_precision(_scope)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def scaler(*args: Any, **kwargs: Any) -> Any:
            import torch

            made = original(*args, **{**kwargs, "enabled": False})  # for its type
            return (
                type(made)(**{**kwargs, "device": _device_type()})
                if isinstance(made, torch.amp.GradScaler)
                else made
            )

        return scaler

    for name in ("get_grad_scaler", "get_fsdp2_grad_scaler"):
        _scope.replace(f"accelerate.accelerator.{name}", make, "it makes a scaler for CUDA")


def _safetensors() -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load_file(filename: Any, device: str | int = "cpu", *args: Any, **kwargs: Any) -> Any:
            if not str(device).startswith(_device_type()):
                return original(filename, device, *args, **kwargs)
            return {name: x.to(device) for name, x in original(filename, "cpu", *args, **kwargs).items()}

        return load_file

    _scope.replace("safetensors.torch.load_file", make, "it knows the names of some devices only")


def _transformers() -> None:
    def make(original: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(original)
        def available() -> bool:
            import torch

            return torch.get_device_module().is_bf16_supported() or original()

        return available

    _scope.replace(
        "transformers.utils.import_utils.is_torch_bf16_gpu_available", make, "it asks some devices only"
    )
