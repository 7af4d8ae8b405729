"""Hugging Face's libraries on the chip without the shim, by ``ACCELERATE_TORCH_DEVICE=chip``.

The libraries train in float32 without patches. Features that they allow only for listed device types (float16,
bfloat16 in ``Trainer``, several processes) are allowed for the chip when that variable names it.
"""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from isthmus_common.after_import import AfterExecution, AfterImport, is_being_executed
from isthmus_common.patches import Scope

VARIABLE = "ACCELERATE_TORCH_DEVICE"

_scope = Scope("hugging_face")


def install() -> None:
    """Patch each library once it is imported."""
    for module, patch in (
        ("accelerate.state", _state),
        ("accelerate.accelerator", _accelerator),
        ("safetensors.torch", _safetensors),
        ("transformers.utils.import_utils", _transformers),
    ):
        if module not in sys.modules:
            _wait(module, AfterImport(module, patch))
        elif is_being_executed(module):  # it is in its own `import torch`
            _wait(module, AfterExecution(module, patch))
        else:
            patch()


def uninstall() -> None:
    """Undo the patches."""
    _scope.undo()


def _wait(module: str, finder: AfterImport | AfterExecution) -> None:
    sys.meta_path.insert(0, finder)
    _scope.record(
        f"sys.meta_path: {module}",
        f"{VARIABLE}=chip: patches the library once it is imported",
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
        "supports process groups of listed devices only; ranks of others train separately",
        expects=("self", "cpu"),
    )


def _join(state: Any) -> str:
    """Set the device of this rank; return the name of the backend for its process group."""
    import torch

    index = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    state.device = torch.device(_device_type(), index)
    return torch.distributed.get_default_backend_for_device(state.device)


def _device_type() -> str:
    return os.environ[VARIABLE].partition(":")[0]


def _accelerator() -> None:
    _allow_mixed_precision()

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def scaler(*args: Any, **kwargs: Any) -> Any:
            import torch

            made = original(*args, **{**kwargs, "enabled": False})  # only its type is used
            return (
                type(made)(**{**kwargs, "device": _device_type()})
                if isinstance(made, torch.amp.GradScaler)
                else made
            )

        return scaler

    for name in ("get_grad_scaler", "get_fsdp2_grad_scaler"):
        _scope.replace(f"accelerate.accelerator.{name}", make, "creates a scaler for CUDA")


class _ReadsAsCuda:
    """A device proxy with the type ``cuda``."""

    type = "cuda"

    def __init__(self, device: Any) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


def _allow_mixed_precision() -> None:
    """Let ``Accelerator.__init__`` allow fp16, which it does for listed device types only."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            owner: Any = next(kind for kind in type(self).__mro__ if "device" in vars(kind))
            device: Any = vars(owner)["device"]
            owner.device = property(lambda instance: _ReadsAsCuda(device.fget(instance)))
            try:
                original(self, *args, **kwargs)
            finally:
                owner.device = device

        return init

    _scope.replace(
        "accelerate.accelerator.Accelerator.__init__",
        make,
        "allows mixed precision for listed device types only",
        expects=("self",),
    )


def _safetensors() -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load_file(filename: Any, device: str | int = "cpu", *args: Any, **kwargs: Any) -> Any:
            if not str(device).startswith(_device_type()):
                return original(filename, device, *args, **kwargs)
            return {name: x.to(device) for name, x in original(filename, "cpu", *args, **kwargs).items()}

        return load_file

    _scope.replace("safetensors.torch.load_file", make, "supports listed device names only")


def _transformers() -> None:
    def make(original: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(original)
        def available() -> bool:
            import torch

            return torch.get_device_module().is_bf16_supported() or original()

        return available

    _scope.replace(
        "transformers.utils.import_utils.is_torch_bf16_gpu_available", make, "checks listed devices only"
    )
