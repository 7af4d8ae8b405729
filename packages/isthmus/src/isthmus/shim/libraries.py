"""Patches for installed libraries that check for CUDA in ways that no proxy of PyTorch covers."""

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from isthmus_common import tools
from isthmus_common.patches import Scope


def install(scope: Scope) -> None:
    """Patch each library once it is imported. Does not import torch."""
    patches = {
        "triton.language": _triton,
        "safetensors.torch": _safetensors,
        "megatron.legacy.fused_kernels": _megatron,
        "deepspeed.accelerator.real_accelerator": _deepspeed,
        "bitsandbytes.cuda_specs": _bitsandbytes_library,
        "bitsandbytes": _bitsandbytes,
        "xformers.ops.fmha": _xformers_attention,
        "xformers.ops.rmsnorm": _xformers_norm,
        "xformers.ops.indexing": _xformers_indexing,
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


def _deepspeed(scope: Scope, device_type: str) -> None:
    """Set DeepSpeed's accelerator through its own interface."""
    try:
        deepspeed = tools.find("deepspeed_accelerator", "isthmus")
        deepspeed.adopt()
    except RuntimeError as error:  # DeepSpeed was used before the shim
        warnings.warn(str(error), stacklevel=2)
        return
    scope.record("deepspeed.accelerator: set", "DeepSpeed has an accelerator for this device", deepspeed.undo)


def _bitsandbytes_library(scope: Scope, device_type: str) -> None:
    """Let bitsandbytes load its library for the CPU, without the message that CUDA's runtime is missing."""
    scope.replace(
        "bitsandbytes.cuda_specs.get_cuda_specs",
        lambda _: lambda: None,
        "chooses a library that needs CUDA's runtime",
        expects=(),
    )
    # Its kernels for CUDA call functions that this library lacks; what has no other kernel takes PyTorch's operators.
    name = "bitsandbytes.backends.cuda.ops"
    sys.modules.setdefault(name, ModuleType(name))
    scope.record(f"sys.modules: {name}", "its kernels call CUDA's runtime", lambda: _forget(name))


def _forget(module: str) -> None:
    sys.modules.pop(module, None)


def _bitsandbytes(scope: Scope, device_type: str) -> None:
    """Register kernels of bitsandbytes' optimizers for the accelerator, and keep paged states in its memory."""
    import torch

    from isthmus.ops import bitsandbytes as ours

    version = tuple(map(int, sys.modules["bitsandbytes"].__version__.split(".")[:2]))
    kernels = {
        "optimizer_update_8bit_blockwise": ours.optimizer_update_8bit_blockwise,
        "optimizer_update_32bit": ours.optimizer_update_32bit(lion_decay_is_decoupled=version >= (0, 50)),
    }
    key = torch._C._dispatch_key_for_device(device_type)
    library = torch.library.Library("bitsandbytes", "IMPL")
    for name, kernel in kernels.items():
        full = f"bitsandbytes::{name}"
        if hasattr(torch.ops.bitsandbytes, name) and not torch._C._dispatch_has_kernel_for_dispatch_key(
            full, key
        ):
            library.impl(name, kernel, key)
    scope.record(
        "torch.library: bitsandbytes", "its 8-bit optimizers have kernels for CUDA only", library._destroy
    )
    functions = (
        "get_paged",
        "fill",
        "percentile_clipping",
        "optimizer_update_8bit",
    )  # a version may lack some
    for name in (each for each in functions if hasattr(sys.modules["bitsandbytes.functional"], each)):
        scope.replace(
            f"bitsandbytes.functional.{name}",
            functools.partial(_on_device, device_type, getattr(ours, name)),
            "it calls CUDA's runtime through a C library",
        )


def _on_device(
    device_type: str, ours: Callable[..., Any], original: Callable[..., Any]
) -> Callable[..., Any]:
    """Take our function if an argument, or the first of a list, is the accelerator's tensor or device."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        given = (
            each[0] if isinstance(each, (list, tuple)) and each else each
            for each in (*args, *kwargs.values())
        )
        is_ours = any(getattr(getattr(each, "device", each), "type", None) == device_type for each in given)
        return (ours if is_ours else original)(*args, **kwargs)

    return function


def _xformers_attention(scope: Scope, device_type: str) -> None:
    """Let xFormers' attention accept the accelerator's tensors."""
    from isthmus.ops import xformers

    names = [each for each in dir(xformers) if each.startswith("memory_efficient_attention")]
    _by_isthmus(scope, device_type, "xformers.ops.fmha", (*names, "merge_attentions"))


def _xformers_norm(scope: Scope, device_type: str) -> None:
    _by_isthmus(scope, device_type, "xformers.ops.rmsnorm", ("rms_norm", "rms_norm_add"))


def _xformers_indexing(scope: Scope, device_type: str) -> None:
    _by_isthmus(scope, device_type, "xformers.ops.indexing", ("index_select_cat", "scaled_index_add"))


def _by_isthmus(scope: Scope, device_type: str, module: str, names: Sequence[str]) -> None:
    """Send calls with the accelerator's tensors to the function of this name in :mod:`isthmus.ops.xformers`."""
    from isthmus.ops import xformers

    for name in names:
        ours = getattr(xformers, name)
        if getattr(sys.modules[module], name) is not ours:
            reason = "its kernels are CUDA's; isthmus.ops has them for every device"
            scope.replace(f"{module}.{name}", functools.partial(_on_device, device_type, ours), reason)
