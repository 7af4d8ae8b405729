"""Functions called by rewritten source. Their names ``__isthmus_*__`` are in ``builtins`` while the hook is active.

Each gives the result of the original expression, except for devices and tensors of the accelerator. A rewritten
module may run before torch is imported, so this module must not import torch.
"""

import builtins
import re
import sys
from typing import Any

from isthmus.shim import rules

_MISSING: Any = object()

# Whether source that calls these names has been compiled; if so, withdraw() keeps them.
_in_use = False

# The device type reported as "cuda"; "" while the shim is inactive.
_accelerator = ""


def set_accelerator(device_type: str) -> str:
    """Report devices of this type as ``cuda``; returns the previous type."""
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
    """``value.device_type`` (text), as in DeviceMesh and DistributedDataParallel."""
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
    """``getattr(value, name[, default])`` with the name "is_cuda" or "type"."""
    arguments = (value, name) if default is _MISSING else (value, name, default)
    if function is not builtins.getattr or not hasattr(value, name):
        return function(*arguments)
    return is_cuda(value) if name == "is_cuda" else device_type(value)


def text(function: Any, value: Any) -> Any:
    """``str(value)``, translated for devices and out-of-memory errors."""
    if function is str and _accelerator and _is_ours(value):
        return "cuda" if value.index is None else f"cuda:{value.index}"
    found = function(value)
    if function is str and _accelerator and isinstance(value, RuntimeError) and _reports_out_of_memory(found):
        return f"{rules.OUT_OF_MEMORY}. {found}"
    return found


def contains(words: str, value: Any) -> bool:
    """``words in value``, where the words are CUDA's out-of-memory message."""
    return words in value or (bool(_accelerator) and isinstance(value, str) and _reports_out_of_memory(value))


def _reports_out_of_memory(message: str) -> bool:
    """Whether a message reports that the accelerator, not CUDA, is out of memory."""
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
    """Add the names to builtins."""
    vars(builtins).update(NAMES)


def use() -> None:
    """Record that source that calls the names has been compiled."""
    global _in_use
    _in_use = True


def withdraw() -> None:
    """Remove the names from builtins, unless rewritten modules still need them (untranslated)."""
    if not _in_use:
        for name in NAMES:
            vars(builtins).pop(name, None)
