"""Proxies for the functions and classes of ``torch.cuda``, redirected to the accelerator."""

import functools
import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from isthmus.shim import cuda_differences, rules
from isthmus.shim.accelerator import Accelerator
from isthmus.shim.devices import instead
from isthmus_common.patches import Scope

# Private names of torch.cuda that libraries use.
_PRIVATE = (
    "_DeviceGuard _exchange_device _get_device_index _get_generator _is_in_bad_fork "
    "_lazy_call _lazy_init _maybe_exchange_device _set_stream_by_id"
).split()


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Redirect ``torch.cuda`` and its submodules to the accelerator."""
    answers = cuda_differences.answers(accelerator)
    for name in [*torch.cuda.__all__, *_PRIVATE, *rules.CUDA_REFUSED]:
        if name not in rules.CUDA_SUBMODULES:
            _install_name(scope, accelerator, answers, name)
    scope.replace(
        "torch.cuda._utils._get_device_index", _device_index(accelerator), "a device may be 'cuda:1'"
    )
    scope.replace(
        "torch.backends.cuda.is_built",
        lambda original: lambda: not cuda_differences.called_by_pytorch() or original(),
        "scripts check it before torch.cuda",
    )
    _install_nvtx(scope)
    _install_memory_history(scope, accelerator)
    _install_profiler(scope)
    _install_graphs(scope, accelerator)
    _install_pools(scope, accelerator)
    _install_words(scope, accelerator)
    _install_handles(scope, accelerator)
    _install_bindings(scope, accelerator)
    scope.replace(
        "torch.cuda.amp.common.amp_definitely_not_available",
        lambda _: lambda: False,
        "the accelerator supports mixed precision",
    )
    scope.replace("torch.cuda.nccl.version", lambda _: cuda_differences.nccl_version, "NCCL is not needed")
    scope.replace(
        "torch.cuda.nccl.is_available", lambda _: lambda tensors: False, "DataParallel reduces without NCCL"
    )


def _install_name(scope: Scope, accelerator: Accelerator, answers: dict[str, Any], name: str) -> None:
    original = getattr(torch.cuda, name, None)
    if isinstance(original, ModuleType):
        return
    value, reason = _answer(accelerator, answers, name)
    if value is None:
        return
    scope.set(torch.cuda, name, value, f"torch.cuda.{name}", reason)
    for submodule in rules.CUDA_SUBMODULES:
        module = importlib.import_module(f"torch.cuda.{submodule}")
        if vars(module).get(name) is original and original is not None:
            scope.set(module, name, value, f"torch.cuda.{submodule}.{name}", reason)


def _answer(accelerator: Accelerator, answers: dict[str, Any], name: str) -> tuple[Any, str]:
    """Replacement of ``torch.cuda.<name>`` and the reason; None keeps the original."""
    theirs = f"torch.{accelerator.type}"
    if name in answers:
        return answers[name], f"documented replacement: {_first_line(answers[name])}"
    renamed = rules.CUDA_RENAMED.get(name, name)
    found = getattr(accelerator.module, renamed, None)
    if found is None and name in rules.CUDA_REFUSED:
        return refuse(accelerator, f"torch.cuda.{name}", rules.CUDA_REFUSED[name]), rules.CUDA_REFUSED[name]
    if inspect.isfunction(found) or inspect.isbuiltin(found):
        return _translating(accelerator, found), f"{theirs}.{renamed}"
    return found, f"{theirs}.{renamed}"


def _first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0] if callable(value) else repr(value)


def _translating(accelerator: Accelerator, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function to translate every device among its arguments."""
    device = accelerator.device
    if not inspect.signature(function).parameters:
        return function

    @functools.wraps(function)
    def proxy(*args: Any, **kwargs: Any) -> Any:
        return function(*map(device, args), **{name: device(value) for name, value in kwargs.items()})

    return proxy


def _device_index(accelerator: Accelerator) -> Callable[[Any], Any]:
    utilities = getattr(accelerator.module, "_utils", None)
    replacement = getattr(utilities, "_get_device_index", torch._utils._get_device_index)
    return lambda _: _translating(accelerator, replacement)


def refuse(accelerator: Accelerator, what: str, why: str) -> Callable[..., Any]:
    """A function that raises NotImplementedError: what is unavailable, on which device, and why."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{what} is not available on {accelerator.type}: {why}")

    @functools.wraps(fail)  # Dynamo reads what context managers such as use_mem_pool wrap
    def refused(*args: Any, **kwargs: Any) -> Any:
        return fail(*args, **kwargs)

    return refused


def _install_nvtx(scope: Scope) -> None:
    for name in rules.NVTX_NO_OPS:
        scope.replace(
            f"torch.cuda.nvtx.{name}",
            lambda _: cuda_differences.nvtx,
            "NVTX ranges are for NVIDIA's profiler",
        )


def _install_memory_history(scope: Scope, accelerator: Accelerator) -> None:
    theirs = getattr(accelerator.module, "memory", None)
    why = "the accelerator's allocator records no history"
    for name in rules.MEMORY_HISTORY:
        target = f"torch.cuda.memory.{name}"
        found = getattr(theirs, name, None) or refuse(accelerator, target, why)
        scope.replace(target, functools.partial(instead, found), why)


def _install_words(scope: Scope, accelerator: Accelerator) -> None:
    """Let errors begin with CUDA's words, if the accelerator's module can do so."""
    set_words = getattr(accelerator.module, "_set_cuda_words", None)
    if set_words is not None:
        set_words(True)
        target = f"torch.{accelerator.type}: errors"
        reason = "libraries look for 'CUDA out of memory' and 'CUDA in forked subprocess'"
        scope.record(target, reason, lambda: set_words(False))


def _install_handles(scope: Scope, accelerator: Accelerator) -> None:
    """Add ``stream.cuda_stream`` if the accelerator's streams have a handle."""
    stream = getattr(accelerator.module, "Stream", None)
    if stream is not None and issubclass(stream, torch.Stream):
        handle = property(lambda self: self.native_handle)
        target = f"torch.{accelerator.type}.Stream.cuda_stream"
        scope.set(stream, "cuda_stream", handle, target, "native handle of the stream, as an integer")


def _member(owner: Any, path: str) -> Any:
    """Return the member of a module, or of one of its modules; None if it is absent."""
    return functools.reduce(lambda found, name: getattr(found, name, None), path.split("."), owner)


def _install_bindings(scope: Scope, accelerator: Accelerator) -> None:
    """Add functions of ``torch._C`` that libraries call directly for speed."""
    functions: dict[str, Any] = {
        name: _member(accelerator.module, theirs) for name, theirs in rules.CUDA_BINDINGS.items()
    }
    stream = getattr(accelerator.module, "Stream", None)
    if stream is not None and issubclass(stream, torch.Stream):
        functions |= cuda_differences.stream_bindings(accelerator.module)
    else:
        functions["_cuda_getCurrentRawStream"] = lambda device: 0
    for name, function in functions.items():
        if function is not None:
            scope.set(torch._C, name, function, f"torch._C.{name}", "libraries call it directly")
    for target in rules.CUBLAS_NO_OPS:
        scope.replace(target, lambda _: lambda: None, "no workspaces of cuBLAS are there to free")


def _install_profiler(scope: Scope) -> None:
    for name in ("start", "stop"):
        scope.replace(
            f"torch.cuda.profiler.{name}",
            lambda _: cuda_differences.profiler,
            "starts and stops NVIDIA's profiler",
        )


def _install_pools(scope: Scope, accelerator: Accelerator) -> None:
    pools = getattr(getattr(accelerator.module, "memory", None), "pools", None)
    for theirs, name in rules.MEMORY_POOLS.items():
        if hasattr(pools, name):
            reason = "Megatron allocates inputs from the memory of its graphs"
            scope.set(torch._C, theirs, getattr(pools, name), f"torch._C.{theirs}", reason)


def _install_graphs(scope: Scope, accelerator: Accelerator) -> None:
    """Install the graph classes. Without graphs of the accelerator they raise NotImplementedError."""
    if hasattr(accelerator.module, "Graph"):
        return
    why = "the accelerator has no graphs; run the region eagerly or with torch.compile"
    for name in rules.CUDA_GRAPHS:
        owner = f"torch.cuda.{name}"
        target = f"{owner}.__init__" if inspect.isclass(getattr(torch.cuda, name)) else owner
        refused = refuse(accelerator, owner, why)
        scope.replace(target, functools.partial(instead, refused), why)
    for name in ("make_graphed_callables", "graph_pool_handle"):
        scope.set(torch.cuda.graphs, name, getattr(torch.cuda, name), f"torch.cuda.graphs.{name}", why)
    scope.replace(
        "torch.cuda.CUDAGraph.__new__", lambda _: refuse(accelerator, "torch.cuda.CUDAGraph", why), why
    )
