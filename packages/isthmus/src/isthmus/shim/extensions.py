"""``torch.utils.cpp_extension`` without CUDA: C++ is compiled, CUDA sources raise NotImplementedError."""

import functools
from collections.abc import Callable
from typing import Any

from isthmus.chip import torch_version
from isthmus.shim.accelerator import CPU, CUDA, Accelerator
from isthmus_common.patches import Scope

MODULE = "torch.utils.cpp_extension"
_REASON = "compiles C++ without the CUDA toolkit"


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Patch the module once it is imported."""
    scope.when_imported(MODULE, functools.partial(_patch, scope, accelerator.type), _REASON)


def _patch(scope: Scope, device_type: str) -> None:
    replace_lock(scope)
    for name in ("include_paths", "library_paths"):
        scope.replace(f"{MODULE}.{name}", _paths, _REASON, expects=("device_type",))
    for name, make, third in (
        ("CUDAExtension", _extension, "args"),
        ("load", _load, "extra_cflags"),
        ("load_inline", _load_inline, "cuda_sources"),
    ):
        sources = "cpp_sources" if name == "load_inline" else "sources"
        scope.replace(
            f"{MODULE}.{name}",
            functools.partial(make, device_type),
            _REASON,
            expects=("name", sources, third),
        )


def replace_lock(scope: Scope) -> None:
    """Replace the lock around builds by one that shows progress, and that a killed process does not leave behind."""
    from isthmus.shim import build_lock

    if torch_version.KILLED_BUILD_LEAVES_LOCK:
        scope.replace(
            f"{MODULE}.FileBaton",
            build_lock.improve_lock,
            "a build that is killed leaves a lock that others wait for; a long one prints nothing",
            expects=("lock_file_path",),
        )
    else:
        scope.replace(f"{MODULE}.FileLock", build_lock.add_progress, "a long build prints nothing")


def _paths(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
    @functools.wraps(original)
    def paths(device_type: str = CPU, *args: Any, **kwargs: Any) -> list[str]:
        return original(CPU if device_type == CUDA else device_type, *args, **kwargs)

    return paths


def _refuse(device_type: str, extension: str, source: str) -> None:
    raise NotImplementedError(
        f"extension {extension!r}: {source} is CUDA C++, which cannot be compiled for {device_type}; "
        "call PyTorch operators, or register the operator with the driver's kernel library"
    )


def _check(device_type: str, extension: str, sources: Any) -> None:
    for source in map(str, [sources] if isinstance(sources, str) else sources):
        if source.endswith((".cu", ".cuh")):
            _refuse(device_type, extension, source)


def _extension(device_type: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def extension(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
        from torch.utils.cpp_extension import CppExtension

        _check(device_type, name, sources)
        return CppExtension(name, sources, *args, **kwargs)

    return extension


def _load(device_type: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
        _check(device_type, name, sources)
        return original(name, sources, *args, **{**kwargs, "with_cuda": False})

    return load


def _load_inline(device_type: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_inline(name: str, cpp_sources: Any, cuda_sources: Any = None, *args: Any, **kwargs: Any) -> Any:
        if cuda_sources:
            _refuse(device_type, name, "cuda_sources")
        return original(name, cpp_sources, None, *args, **{**kwargs, "with_cuda": False})

    return load_inline
