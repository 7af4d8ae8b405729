"""What rewritten source calls. Names start with ``__isthmus_`` and live in ``builtins`` while the hook is on.

Each is the plain expression for everything but the accelerator's devices and tensors. ``torch`` may not be
imported when a rewritten module runs, so nothing here imports it.
"""

from __future__ import annotations

import builtins
import re
import sys
from typing import Any

from isthmus.shim import rules

_MISSING: Any = object()

# Whether source that calls these names has been compiled; they must then stay.
_in_use = False

# The device type that reads as "cuda"; "" until the shim is entered.
_accelerator = ""


def set_accelerator(device_type: str) -> str:
    """Let devices of this type read as ``cuda``; returns the type that did before."""
    global _accelerator
    before, _accelerator = _accelerator, device_type
    return before


def _is_ours(device: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(device, torch.device) and device.type == _accelerator


def device_type(value: Any) -> Any:
    """``value.type``."""
    found = value.type
    return "cuda" if found == _accelerator and _is_ours(value) else found


def mesh_device_type(value: Any) -> Any:
    """``value.device_type``, which is text: of a device mesh, DistributedDataParallel and others of PyTorch's."""
    found = value.device_type
    if not _accelerator or found != _accelerator:
        return found
    of_torch = any(kind.__module__.partition(".")[0] == "torch" for kind in type(value).__mro__)
    return "cuda" if of_torch else found


def is_cuda(value: Any) -> Any:
    """``value.is_cuda``."""
    found = value.is_cuda
    if found is not False or not _accelerator:
        return found
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        value = value.data
    storages = (torch.UntypedStorage, torch.TypedStorage)
    return isinstance(value, (torch.Tensor, *storages)) and value.device.type == _accelerator


def get_attribute(function: Any, value: Any, name: str, default: Any = _MISSING) -> Any:
    """``getattr(value, name[, default])`` where name is one of the rules'."""
    arguments = (value, name) if default is _MISSING else (value, name, default)
    if function is not builtins.getattr or not hasattr(value, name):
        return function(*arguments)
    return is_cuda(value) if name == "is_cuda" else device_type(value)


def text(function: Any, value: Any) -> Any:
    """``str(value)``, of a device or of the error that the memory is full."""
    if function is str and _accelerator and _is_ours(value):
        return "cuda" if value.index is None else f"cuda:{value.index}"
    found = function(value)
    if function is str and _accelerator and isinstance(value, RuntimeError) and _says_full(found):
        return f"{rules.OUT_OF_MEMORY}. {found}"
    return found


def contains(words: str, value: Any) -> bool:
    """``words in value``, where the words are those of CUDA when its memory is full."""
    return words in value or (bool(_accelerator) and isinstance(value, str) and _says_full(value))


def _says_full(message: str) -> bool:
    """Whether a message says of the accelerator that its memory is full, and does not say it of CUDA."""
    ours = re.search(rf"\b{re.escape(_accelerator)}\b[^\n]*\bout of memory", message, re.IGNORECASE)
    return ours is not None and rules.OUT_OF_MEMORY not in message


def version_cuda(version: Any) -> Any:
    """``version.cuda``."""
    torch = sys.modules.get("torch")
    if _accelerator and torch is not None and version is torch.version:
        return rules.CUDA_VERSION
    return version.cuda


NAMES = {
    "__isthmus_type__": device_type,
    "__isthmus_device_type__": mesh_device_type,
    "__isthmus_is_cuda__": is_cuda,
    "__isthmus_getattr__": get_attribute,
    "__isthmus_str__": text,
    "__isthmus_version_cuda__": version_cuda,
    "__isthmus_contains__": contains,
}


def offer() -> None:
    """Put the names into builtins."""
    vars(builtins).update(NAMES)


def use() -> None:
    """Note that source which calls the names has been compiled."""
    global _in_use
    _in_use = True


def withdraw() -> None:
    """Take the names out of builtins, unless rewritten modules still need them: they then give plain answers."""
    if not _in_use:
        for name in NAMES:
            vars(builtins).pop(name, None)
