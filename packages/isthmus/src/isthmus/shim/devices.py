"""Proxies for functions and constructors of PyTorch that take a device: factories, autocast, ``torch.device``.

Methods of tensors and storages are in tensor_methods.py.
"""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

from isthmus.shim import rules
from isthmus.shim.accelerator import Accelerator
from isthmus_common.patches import Scope


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Let every function of rules.py that takes a device accept ``"cuda"`` for the accelerator."""
    _fill_caches_of_pytorch(scope)
    _constructors(scope, accelerator)
    _factories(scope, accelerator)
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
    """Wrap a function to translate its keyword ``device``."""
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
    """Wrap a function to translate the device at a position or keyword, and a default of ``cuda``."""
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
    except ValueError:  # builtin without a signature
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
    """Let ``torch.compile`` put the proxies into its graphs, like the originals."""

    def allow() -> None:
        importlib.import_module("torch._dynamo").allow_in_graph(functions)
        scope.record("torch._dynamo: allow_in_graph", "identifies the proxies by id", forget)

    def forget() -> None:
        table = importlib.import_module("torch._dynamo.trace_rules")
        for function in functions:
            table._allowed_callable_ids.remove(id(function))
        table.clear_lru_cache()

    scope.when_imported("torch._dynamo", allow, "allows the proxies in graphs")


def _fold_in_graphs(scope: Scope, originals: list[Callable[..., Any]]) -> None:
    """Let ``torch.compile`` fold calls of the originals; its table would otherwise hold the proxies."""

    def fold() -> None:
        table = importlib.import_module("torch._dynamo.variables.torch").constant_fold_functions
        table.update(dict.fromkeys(originals))

    scope.when_imported("torch._dynamo.variables.torch", fold, "folds calls of the originals")


def _register_with_script(scope: Scope, original: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Let ``torch.jit.script`` map the proxy to the ATen operator of the original."""
    from torch.jit import _builtins

    table = _builtins._get_builtin_table()
    operator = table.get(id(original))
    if operator is None:
        return
    table[id(function)] = operator
    scope.record(
        f"torch.jit: {operator}", "maps the proxy to its operator", lambda: table.pop(id(function)) and None
    )


def _fill_caches_of_pytorch(scope: Scope) -> None:
    """Let PyTorch build its tables of functions before the functions are patched."""
    from torch.jit import _builtins
    from torch.utils import _device

    _builtins._get_builtin_table()
    _device._device_constructors()
    torch.get_device_module.cache_clear()
    scope.record(
        "torch.get_device_module: cache", "caches the module of 'cuda'", torch.get_device_module.cache_clear
    )


def _autocast(scope: Scope, accelerator: Accelerator) -> None:
    """Autocast state: calls without a device type mean CUDA, so they go to the accelerator."""

    def in_front(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def function(*args: Any) -> Any:
            given = args and isinstance(args[0], str)
            return original(*map(accelerator.device, args)) if given else original(accelerator.type, *args)

        return function

    for target in rules.AUTOCAST_STATE:
        scope.replace(target, in_front, "its device_type may be 'cuda', also by default")
    for target, current in rules.AUTOCAST_GPU.items():
        function = functools.partial(getattr(torch, current.removeprefix("torch.")), accelerator.type)
        scope.replace(target, functools.partial(instead, function), f"{current} of the accelerator")


def instead(replacement: Any, original: Any) -> Any:
    """The replacement; bound by ``functools.partial`` for patches that ignore the original."""
    return replacement
