"""Custom operators registered for CUDA, and factory calls that reach CUDA's dispatch key."""

import functools
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from isthmus.shim.accelerator import CPU, Accelerator
from isthmus_common.patches import Scope

_KEYS_OF_CPU = ("CPU", "AutogradCPU", "AutocastCPU")
_FACTORIES = ("empty.memory_format", "empty_strided", "tril_indices", "triu_indices")


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Redirect registrations for CUDA to the accelerator, and factory calls that bypass the proxies."""
    _cuda_key(scope, accelerator)
    scope.replace(
        "torch.library.Library.impl",
        functools.partial(_impl_on_cpu if accelerator.type == CPU else _impl, accelerator),
        "an operator registered for CUDA is registered for the accelerator",
        expects=("self", "op_name", "fn", "dispatch_key"),
    )
    scope.replace(
        "torch.library.Library.__init__",
        functools.partial(_init, accelerator),
        "a library for CUDA becomes one for the accelerator",
        expects=("self", "ns", "kind", "dispatch_key"),
    )


def _cuda_key(scope: Scope, accelerator: Accelerator) -> None:
    """Allocate on the accelerator when a factory reaches CUDA's dispatch key.

    TorchScript and C++ code use ``cuda`` devices that bypass the Python proxies; all their tensors are created by
    these four operators.
    """
    library: Any = torch.library.Library("aten", "IMPL")
    for name in _FACTORIES:
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        with warnings.catch_warnings():  # builds for CUDA have kernels, which are replaced on purpose
            warnings.filterwarnings("ignore", "Warning only once for all operators")
            library.impl(name, _on_accelerator(accelerator, operator), "CUDA", allow_override=True)
        reason = "TorchScript and C++ create tensors on 'cuda' without a proxy"
        scope.record(f"aten::{name} [CUDA]", reason, lambda: None)
    scope.record("torch.library: aten [CUDA]", "holds the four registrations above", library._destroy)


def _on_accelerator(accelerator: Accelerator, operator: Callable[..., Any]) -> Callable[..., Any]:
    def allocate(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        return operator(*args, device=accelerator.device(device), **kwargs)

    return allocate


def _impl(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **kwargs: Any) -> Any:
        key = dispatch_key if _is_pytorchs(fn) else accelerator.key(dispatch_key)
        return original(self, op_name, fn, key, **kwargs)

    return impl


def _impl_on_cpu(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    """An operator's kernel for CUDA serves the CPU only where it has none of its own, registered before or after."""
    ours: dict[tuple[str, str], Any] = {}  # the library that holds a kernel for CUDA, by operator and key

    @functools.wraps(original)
    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **kwargs: Any) -> Any:
        given = dispatch_key or self.dispatch_key
        key = accelerator.key(given)
        is_for_cuda = key != given or (not dispatch_key and getattr(self, "_is_for_cuda", False))
        if key not in _KEYS_OF_CPU or _is_pytorchs(fn):
            return original(self, op_name, fn, dispatch_key, **kwargs)
        name = self._resolve_op_name(op_name, "impl")
        name = name if "::" in name else f"{self.ns}::{name}"
        held = ours.pop((name, key), None)
        if held is not None:
            held._destroy()
        if not is_for_cuda:
            return original(self, op_name, fn, key, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
            return None
        ours[name, key] = held = torch.library.Library(self.ns, "FRAGMENT")
        self._registration_handles.append(SimpleNamespace(destroy=held._destroy))
        return original(held, op_name, fn, key, **kwargs)

    return impl


def _is_pytorchs(function: Any) -> bool:
    """Whether this is PyTorch's own kernel, which PyTorch registers for other devices itself.

    The functions of torch.library and torch._library wrap kernels of programs.
    """
    module = getattr(function, "__module__", None) or ""
    return module.startswith("torch.") and not module.startswith(("torch._library.", "torch.library"))


def _init(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(self: Any, ns: str, kind: str, dispatch_key: str = "") -> None:
        original(self, ns, kind, accelerator.key(dispatch_key))
        self._is_for_cuda = accelerator.key(dispatch_key) != dispatch_key

    return init
