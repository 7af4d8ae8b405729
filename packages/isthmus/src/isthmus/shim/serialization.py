"""Checkpoints as CUDA writes them: ``torch.save`` and pickle name CUDA's devices, ``torch.load`` accepts them.

A checkpoint written under the shim loads in PyTorch without Isthmus, with ``map_location`` where CUDA is missing.
"""

import copyreg
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import serialization

from isthmus.shim.accelerator import CPU, CUDA, Accelerator
from isthmus_common.patches import Scope

_FIRST = 5  # priority in torch.serialization; its own entries begin at 10


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Tag storages of the accelerator ``cuda:0``, load such storages onto it, and translate ``map_location``."""
    _register_location(scope, accelerator)
    _register_device(scope, accelerator)
    scope.replace(
        "torch.Tensor._reduce_ex_internal",
        functools.partial(_reduce, accelerator),
        "pickles a sparse tensor as indices and values, as on CUDA",
        expects=("self", "proto"),
    )
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

    def tag(storage: Any) -> str | None:
        device = storage.device
        is_ours = device.type == accelerator.type != CPU
        return f"{CUDA}:{device.index or 0}" if is_ours else None

    serialization.register_package(_FIRST, tag, restore)
    scope.record(
        "torch.serialization: location 'cuda'",
        "checkpoints name CUDA's devices, and load onto the accelerator",
        lambda: registry.__setitem__(slice(None), before),
    )


def _register_device(scope: Scope, accelerator: Accelerator) -> None:
    """Pickle devices of the accelerator as CUDA's: arguments and configurations are saved beside the weights."""
    before = copyreg.dispatch_table.get(torch.device)

    def reduce(device: torch.device) -> tuple[type, tuple[Any, ...]]:
        name = accelerator.cuda_name(device.type)
        return torch.device, (name,) if device.index is None else (name, device.index)

    def undo() -> None:
        del copyreg.dispatch_table[torch.device]
        if before is not None:
            copyreg.dispatch_table[torch.device] = before

    copyreg.dispatch_table[torch.device] = reduce
    scope.record("copyreg: torch.device", "pickles name CUDA's devices", undo)


def _reduce(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reduce(self: torch.Tensor, proto: Any) -> Any:
        if self.layout is not torch.sparse_coo or self.device.type != accelerator.type:
            return original(self, proto)
        parts = (self._indices(), self._values(), self.size(), self.is_coalesced())
        return vars(torch._utils)["_rebuild_sparse_tensor"], (self.layout, parts)

    return reduce


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
