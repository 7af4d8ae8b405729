"""O1: autocast in the whole program, and functions of the user that run in a fixed precision."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

Cast = Callable[[Any], Any]

_registered: list[tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = []
_is_active = False


def device_type() -> str:
    """The device type of the current accelerator; ``cpu`` without one."""
    found = torch.accelerator.current_accelerator()
    return found.type if found is not None else "cpu"


def applied(cast: Cast, value: Any) -> Any:
    """``value`` with each tensor in it, also in containers, replaced by ``cast(tensor)``."""
    if isinstance(value, torch.Tensor):
        return cast(value)
    if isinstance(value, dict):
        return type(value)((key, applied(cast, each)) for key, each in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(applied(cast, each) for each in value))
    return type(value)(applied(cast, each) for each in value) if isinstance(value, (list, tuple)) else value


def to_type(dtype: torch.dtype) -> Cast:
    """A cast of floating-point tensors."""
    return lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor


def activate() -> None:
    """Turn autocast to float16 on for the rest of the program, and wrap the registered functions."""
    global _is_active
    _is_active = True
    kind = device_type()
    torch.set_autocast_dtype(kind, torch.float16)
    torch.set_autocast_enabled(kind, True)
    # The cache is emptied where a context ends, and this one does not.
    torch.set_autocast_cache_enabled(False)
    for module, name, wrap in _registered:
        setattr(module, name, wrap(getattr(module, name)))
    _registered.clear()


@contextlib.contextmanager
def disable_casts() -> Iterator[None]:
    """Run the block without the casts of O1."""
    global _is_active
    before, _is_active = _is_active, False
    try:
        with torch.autocast(device_type(), enabled=False):
            yield
    finally:
        _is_active = before


def _casting(cast_of: Callable[[Any], Cast], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not _is_active:
            return function(*args, **kwargs)
        cast = cast_of((args, kwargs))
        return function(*applied(cast, args), **applied(cast, kwargs))

    return wrapper


def _on_device(dtype: torch.dtype) -> Cast:
    """A cast of floating-point tensors on the accelerator; tensors on the CPU stay as they are."""
    return lambda each: to_type(dtype)(each) if each.device.type != "cpu" else each


def _widest(arguments: Any) -> Cast:
    dtypes: list[torch.dtype] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point():
            dtypes.append(tensor.dtype)
        return tensor

    applied(note, arguments)
    return _on_device(functools.reduce(torch.promote_types, dtypes)) if dtypes else lambda each: each


def half_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: under O1, cast arguments to float16."""
    return _casting(lambda _: _on_device(torch.float16), fn)


def float_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: under O1, cast arguments to float32."""
    return _casting(lambda _: _on_device(torch.float32), fn)


def promote_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: under O1, cast arguments to the widest of their dtypes."""
    return _casting(_widest, fn)


def _register(module: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    if not hasattr(module, name):
        raise ValueError(f"amp: no function named {name} in {getattr(module, '__name__', module)}")
    _registered.append((module, name, wrap))


def register_half_function(module: Any, name: str) -> None:
    """Cast arguments of ``module.name`` to float16 under O1; call it before ``initialize``.

    Raises:
        ValueError: no such function.
    """
    _register(module, name, half_function)


def register_float_function(module: Any, name: str) -> None:
    """:func:`register_half_function` with float32."""
    _register(module, name, float_function)


def register_promote_function(module: Any, name: str) -> None:
    """:func:`register_half_function` with the widest dtype of the arguments."""
    _register(module, name, promote_function)
