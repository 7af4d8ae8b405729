"""Patches for installed libraries that check for CUDA in ways that no proxy of PyTorch covers."""

import functools
import inspect
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

from isthmus.shim.rewrite import compile_source
from isthmus_common import tools
from isthmus_common.patches import Scope


def install(scope: Scope) -> None:
    """Patch each library once it is imported. Does not import torch."""
    patches = {
        "triton.language": _triton,
        "accelerate.accelerator": _accelerate,
        "accelerate.utils.memory": _full_memory,
        "safetensors.torch": _safetensors,
        "megatron.legacy.fused_kernels": _megatron,
        "deepspeed.accelerator.real_accelerator": _deepspeed,
        "transformers.utils.import_utils": _transformers,
        "fla.modules.fused_cross_entropy.ops": _flash_linear_attention,
    }
    for module, patch in patches.items():
        scope.when_imported(module, functools.partial(_patch, scope, patch), "checks for CUDA itself")


def _patch(scope: Scope, patch: Callable[[Scope, str], None]) -> None:
    import torch  # noqa: F401 - importing torch enters the shim

    from isthmus.shim import accelerator

    device_type = accelerator.current(check=False).type
    if device_type not in (accelerator.CUDA, accelerator.CPU):
        patch(scope, device_type)


def _triton(scope: Scope, device_type: str) -> None:
    """Let the script's Triton kernels run on the accelerator."""
    from isthmus.shim import triton

    triton.install(scope, device_type)


class _ReadsAsCuda:
    """A device proxy with the type ``cuda``."""

    type = "cuda"

    def __init__(self, device: Any) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


def _accelerate(scope: Scope, device_type: str) -> None:
    allow_mixed_precision(scope)


def allow_mixed_precision(scope: Scope) -> None:
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

    scope.replace(
        "accelerate.accelerator.Accelerator.__init__",
        make,
        "allows mixed precision for listed device types only",
        expects=("self",),
    )


def _full_memory(scope: Scope, device_type: str) -> None:
    """Let ``find_executable_batch_size`` recognize out-of-memory errors of every device."""

    def make(original: Callable[[Exception], bool]) -> Callable[[Exception], bool]:
        @functools.wraps(original)
        def should_reduce_batch_size(exception: Exception) -> bool:
            import torch

            return isinstance(exception, torch.OutOfMemoryError) or original(exception)

        return should_reduce_batch_size

    scope.replace(
        "accelerate.utils.memory.should_reduce_batch_size",
        make,
        "recognizes out-of-memory messages of listed devices only",
        expects=("exception",),
    )


def _safetensors(scope: Scope, device_type: str) -> None:
    """Let ``safe_open(device="chip:0")`` work: pass ``cuda:0``, which the shim redirects to the accelerator."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def safe_open(filename: Any, framework: str, device: Any = "cpu", **kwargs: Any) -> Any:
            kind, separator, index = str(device).partition(":")
            if kind == device_type:
                device = f"cuda{separator}{index}"
            return original(filename, framework, device, **kwargs)

        return safe_open

    reason = "supports listed device names only"
    for module in ("safetensors", "safetensors.torch"):
        scope.replace(f"{module}.safe_open", make, reason)


def _megatron(scope: Scope, device_type: str) -> None:
    """Let Megatron-LM start without nvcc, which its loader of fused kernels runs; old versions compile CUDA C++."""
    scope.replace(
        "megatron.legacy.fused_kernels.load",
        lambda _: lambda args: None,
        "asks nvcc for its version; PyTorch's operators and isthmus.ops are used instead of its kernels",
        expects=("args",),
    )


def _transformers(scope: Scope, device_type: str) -> None:
    """Accept ``TrainingArguments(tf32=True)``: computing in float32 is allowed."""
    scope.replace(
        "transformers.utils.import_utils.is_torch_tf32_available",
        lambda _: lambda: True,
        "TrainingArguments refuses tf32=True where torch.version.cuda is None",
    )


def _flash_linear_attention(scope: Scope, device_type: str) -> None:
    """Rewrite the method that compares ``device.type`` with the names of other devices, as a user's own is."""
    scope.replace(
        "fla.modules.fused_cross_entropy.ops.FusedCrossEntropyLoss.forward",
        _rewrite,
        "supports listed device names only",
        expects=("self", "input", "target"),
    )


def _rewrite(function: Any) -> Any:
    source, line = inspect.getsourcelines(function)
    text = "\n" * (line - 1) + textwrap.dedent("".join(source))  # keeps line numbers
    namespace: dict[str, Any] = {}
    exec(compile_source(text, function.__code__.co_filename), function.__globals__, namespace)
    return namespace[function.__name__]


def _deepspeed(scope: Scope, device_type: str) -> None:
    """Set DeepSpeed's accelerator through its own interface."""
    try:
        deepspeed = tools.find("deepspeed_accelerator", "isthmus")
        deepspeed.adopt()
    except RuntimeError as error:  # DeepSpeed was used before the shim
        warnings.warn(str(error), stacklevel=2)
        return
    scope.record("deepspeed.accelerator: set", "DeepSpeed has an accelerator for this device", deepspeed.undo)
