"""Proxies for everything in PyTorch that takes a device: factories, methods, constructors, contexts."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

from isthmus._support.patches import Scope
from isthmus.shim import rules
from isthmus.shim.accelerator import Accelerator


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Let every function of rules.py that takes a device accept ``"cuda"`` and mean the accelerator."""
    _fill_caches_of_pytorch(scope)
    _constructors(scope, accelerator)
    _factories(scope, accelerator)
    _tensor_methods(scope, accelerator)
    scope.replace(
        "torch.set_default_tensor_type",
        functools.partial(_default_tensor_type, accelerator),
        "'torch.cuda.FloatTensor' sets the default dtype and device",
    )
    _fold_in_graphs(scope, [torch.is_autocast_enabled, torch.get_autocast_dtype])
    _autocast(scope, accelerator)
    for target, keyword in rules.DEVICE_FIRST.items():
        scope.replace(target, functools.partial(translate_first, accelerator, keyword, 0), _reason(keyword))
    for target, keyword in rules.DEVICE_SECOND.items():
        scope.replace(target, functools.partial(translate_first, accelerator, keyword, 1), _reason(keyword))
    for target, keyword in rules.METHOD_FIRST.items():
        scope.replace(
            target,
            functools.partial(translate_first, accelerator, keyword, 1),
            _reason(keyword),
            expects=("self", keyword),
        )


def _reason(keyword: str) -> str:
    return f"its {keyword} may be 'cuda'"


def translate_keyword(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    """original, with its keyword ``device`` translated."""
    device = accelerator.numbered_device

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = device(kwargs["device"])
        return original(*args, **kwargs)

    return function


def translate_first(
    accelerator: Accelerator, keyword: str, position: int, original: Callable[..., Any]
) -> Callable[..., Any]:
    """original, with the device at a position or under a keyword translated; ``cuda`` as its default too."""
    device = accelerator.numbered_device
    defaults_to_cuda = _default(original, keyword) == "cuda"

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position and (meant := device(args[position])) is not args[position]:
            args = (*args[:position], meant, *args[position + 1 :])
        if keyword in kwargs:
            kwargs[keyword] = device(kwargs[keyword])
        elif defaults_to_cuda and len(args) <= position:
            kwargs[keyword] = accelerator.type
        return original(*args, **kwargs)

    return function


def _default(function: Callable[..., Any], keyword: str) -> Any:
    try:
        parameter = inspect.signature(function).parameters.get(keyword)
    except ValueError:  # a builtin without a signature
        return None
    return parameter.default if parameter else None


# ---- torch.device and other types written in C ---------------------------------------------------------------
def _constructors(scope: Scope, accelerator: Accelerator) -> None:
    for target, keyword in rules.CONSTRUCTORS.items():
        scope.construct(
            target,
            functools.partial(_constructor, accelerator, keyword),
            f"{target}('cuda') is the accelerator's",
        )


def _constructor(accelerator: Accelerator, keyword: str, original: Callable[..., Any]) -> Callable[..., Any]:
    device = accelerator.numbered_device

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (device(args[0]), *args[1:])
        elif keyword in kwargs:
            kwargs[keyword] = device(kwargs[keyword])
        return original(cls, *args, **kwargs)

    return new


# ---- factories -----------------------------------------------------------------------------------------------
def _factories(scope: Scope, accelerator: Accelerator) -> None:
    proxies = []

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        function = translate_keyword(accelerator, original)
        _register_with_script(scope, original, function)
        proxies.append(function)
        return function

    for target in rules.FACTORIES:
        scope.replace(target, make, f"{target}(device='cuda')")
    _register_with_dynamo(scope, proxies)


def _register_with_dynamo(scope: Scope, functions: list[Callable[..., Any]]) -> None:
    """Let ``torch.compile`` put the proxies into its graphs, as it does with the originals."""

    def allow() -> None:
        importlib.import_module("torch._dynamo").allow_in_graph(functions)
        scope.record("torch._dynamo: allow_in_graph", "it knows the proxies by their ids", forget)

    def forget() -> None:
        table = importlib.import_module("torch._dynamo.trace_rules")
        for function in functions:
            table._allowed_callable_ids.remove(id(function))
        table.clear_lru_cache()

    scope.when_imported("torch._dynamo", allow, "its graphs take the proxies")


def _fold_in_graphs(scope: Scope, originals: list[Callable[..., Any]]) -> None:
    """Let ``torch.compile`` compute calls of the originals while it traces: its table would hold the proxies."""

    def fold() -> None:
        table = importlib.import_module("torch._dynamo.variables.torch").constant_fold_functions
        table.update(dict.fromkeys(originals))

    scope.when_imported("torch._dynamo.variables.torch", fold, "it folds calls of the originals")


def _register_with_script(scope: Scope, original: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Let ``torch.jit.script`` take the proxy for the ATen operator that the original stands for."""
    from torch.jit import _builtins

    table = _builtins._get_builtin_table()
    operator = table.get(id(original))
    if operator is None:
        return
    table[id(function)] = operator
    scope.record(
        f"torch.jit: {operator}", "torch.jit.script knows the proxy", lambda: table.pop(id(function)) and None
    )


def _fill_caches_of_pytorch(scope: Scope) -> None:
    """Tables that PyTorch builds once from its functions are built from the originals."""
    from torch.jit import _builtins
    from torch.utils import _device

    _builtins._get_builtin_table()
    _device._device_constructors()
    torch.get_device_module.cache_clear()
    scope.record(
        "torch.get_device_module: cache",
        "it remembers what 'cuda' stood for",
        torch.get_device_module.cache_clear,
    )


def _autocast(scope: Scope, accelerator: Accelerator) -> None:
    """State of autocast: without a device type it is that of CUDA, so here of the accelerator."""

    def in_front(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def function(*args: Any) -> Any:
            given = args and isinstance(args[0], str)
            return original(*map(accelerator.device, args)) if given else original(accelerator.type, *args)

        return function

    for target in rules.AUTOCAST_STATE:
        scope.replace(target, in_front, "its device_type may be 'cuda', and is where it is left out")
    for target, current in rules.AUTOCAST_GPU.items():
        function = functools.partial(getattr(torch, current.removeprefix("torch.")), accelerator.type)
        scope.replace(target, functools.partial(_instead, function), f"{current} of the accelerator")


def _instead(replacement: Any, original: Any) -> Any:
    return replacement


# ---- methods of torch.Tensor ---------------------------------------------------------------------------------
def _tensor_methods(scope: Scope, accelerator: Accelerator) -> None:
    for name in rules.TENSOR_KEYWORD:
        scope.replace(
            f"torch.Tensor.{name}",
            functools.partial(translate_keyword, accelerator),
            f"{name}(device='cuda')",
        )
    for name in rules.TENSOR_FIRST:
        scope.replace(
            f"torch.Tensor.{name}",
            functools.partial(translate_first, accelerator, "device", 1),
            f"{name}('cuda')",
        )
    scope.replace(
        "torch.Tensor.cuda", lambda _: _tensor_cuda(accelerator), "x.cuda() moves to the accelerator"
    )
    scope.replace(
        "torch.Tensor.type",
        functools.partial(_tensor_type, accelerator),
        "x.type() reads and takes 'torch.cuda.FloatTensor'",
    )
    scope.replace(
        "torch.nn.parameter.UninitializedTensorMixin._allowed_methods",
        lambda allowed: [*allowed, torch.Tensor.to, torch.Tensor.cuda],
        "parameters of lazy modules may be moved by the proxies too",
    )


def _tensor_cuda(accelerator: Accelerator) -> Callable[..., Any]:
    def cuda(
        self: torch.Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        """A copy of the tensor on the accelerator; itself if it is there already."""
        target = accelerator.type if device is None else accelerator_device(accelerator, device)
        return self.to(target, non_blocking=non_blocking, memory_format=memory_format)

    return cuda


def accelerator_device(accelerator: Accelerator, device: Any) -> torch.device:
    """The device that ``cuda(device)`` means: None is the current one, a number an index."""
    if device is None:
        return torch.device(accelerator.type, accelerator.module.current_device())
    if isinstance(device, int):
        return torch.device(accelerator.type, device)
    return torch.device(accelerator.device(device))


def _tensor_type(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    ours, cuda = accelerator.tensor_types, "torch.cuda."

    @functools.wraps(original)
    def function(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if dtype is None:
            return original(self, **kwargs).replace(ours, cuda)
        if isinstance(dtype, str):
            dtype = dtype.replace(cuda, ours)
        elif is_tensor_type(dtype, accelerator):
            return self.to(device=accelerator_device(accelerator, None), dtype=dtype.dtype)
        return original(self, dtype, non_blocking, **kwargs)

    return function


def is_tensor_type(value: Any, accelerator: Accelerator) -> bool:
    """Whether value is one of the accelerator's typed tensors, such as ``torch.cuda.FloatTensor`` under the shim."""
    return isinstance(value, type) and any(
        value is getattr(accelerator.module, name, None) for name in rules.TENSOR_TYPES
    )


def _default_tensor_type(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    by_name = {f"torch.cuda.{name}": getattr(torch, dtype) for name, dtype in rules.TENSOR_TYPES.items()}

    @functools.wraps(original)
    def function(t: Any) -> None:
        dtype = by_name.get(t) if isinstance(t, str) else None
        if is_tensor_type(t, accelerator):
            dtype = t.dtype
        if dtype is None:
            original(t)
            torch.set_default_device(None)
        else:
            torch.set_default_dtype(dtype)
            torch.set_default_device(accelerator.type)

    return function
