"""``torch.load`` of checkpoints written on CUDA, and with a ``map_location`` that names CUDA."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import serialization

from isthmus._support.patches import Scope
from isthmus.shim.accelerator import CUDA, Accelerator

_BEFORE_CUDA = 15  # priority in torch.serialization; its CUDA entry has 20


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Load storages tagged ``cuda:0`` onto the accelerator, and translate ``map_location``."""
    _register_location(scope, accelerator)
    for target in ("torch.load", "torch.serialization.load"):
        scope.replace(
            target,
            functools.partial(_load, accelerator),
            "map_location may name cuda, as str, device, dict or function",
            expects=("f", "map_location"),
        )


def _register_location(scope: Scope, accelerator: Accelerator) -> None:
    registry = serialization._package_registry
    before = list(registry)

    def restore(storage: Any, location: str) -> Any:
        if location != CUDA and not location.startswith("cuda:"):
            return None
        default: Any = serialization.default_restore_location
        return default(storage, accelerator.name(location))

    serialization.register_package(_BEFORE_CUDA, lambda storage: None, restore)
    scope.record(
        "torch.serialization: location 'cuda'",
        "checkpoints written on CUDA load onto the accelerator",
        lambda: registry.__setitem__(slice(None), before),
    )


def _load(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(f, translate_map_location(accelerator, map_location), *args, **kwargs)

    return load


def translate_map_location(accelerator: Accelerator, location: Any) -> Any:
    """Translate ``map_location``.

    Keys and values of a dict are translated. A function receives ``cuda:0`` for storages saved on the accelerator, as
    on CUDA.
    """
    if isinstance(location, dict):
        translated = {accelerator.name(key): accelerator.device(value) for key, value in location.items()}
        return {**location, **translated, **{key: translated[accelerator.name(key)] for key in location}}
    if callable(location) and not isinstance(location, (str, torch.device)):
        return lambda storage, tag: location(storage, accelerator.cuda_name(tag))
    return accelerator.device(location)
