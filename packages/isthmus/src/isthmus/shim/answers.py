"""Functions called by rewritten source in place of reading attributes of devices, tensors and storages.

Each gives the result of the original expression, except for devices and tensors of the accelerator. A rewritten
module may run before torch is imported, so this module must not import torch.
"""

import builtins
import functools
import operator
import re
import sys
from typing import Any

from isthmus.shim import rules

_MISSING: Any = object()

# The device type reported as "cuda"; "" while the shim is inactive.
_accelerator = ""


def set_accelerator(device_type: str) -> str:
    """Report devices of this type as ``cuda``; returns the previous type."""
    global _accelerator
    before, _accelerator = _accelerator, device_type
    return before


def accelerator() -> str:
    """The device type reported as ``cuda``; "" while the shim is inactive."""
    return _accelerator


def is_ours(device: Any) -> bool:
    """Whether this is a ``torch.device`` of the accelerator."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(device, torch.device) and device.type == _accelerator


def device_type(value: Any) -> Any:
    """``value.type``."""
    found = value.type
    return "cuda" if found == _accelerator and is_ours(value) else found


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
    if isinstance(value, type):  # torch.cuda.FloatTensor
        return getattr(value, f"is_{_accelerator}", False) is True
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        value = value.data
    storages = (torch.UntypedStorage, torch.TypedStorage)
    return isinstance(value, (torch.Tensor, *storages)) and value.device.type == _accelerator


def get_attribute(function: Any, value: Any, name: str, default: Any = _MISSING) -> Any:
    """``getattr(value, name[, default])``."""
    arguments = (value, name) if default is _MISSING else (value, name, default)
    if function is not builtins.getattr or name not in ("is_cuda", "type") or not hasattr(value, name):
        return function(*arguments)
    return is_cuda(value) if name == "is_cuda" else device_type(value)


class _Getter:
    """``operator.attrgetter`` of names that include "is_cuda" or "type"."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __call__(self, value: Any) -> Any:
        found = tuple(functools.reduce(_attribute, name.split("."), value) for name in self._names)
        return found if len(found) > 1 else found[0]


def _attribute(value: Any, name: str) -> Any:
    return get_attribute(builtins.getattr, value, name)


def attribute_getter(function: Any, *names: Any, **kwargs: Any) -> Any:
    """``operator.attrgetter(*names)``."""
    read = {part for name in names if isinstance(name, str) for part in name.split(".")}
    ours = function is operator.attrgetter and read & {"is_cuda", "type"}
    return _Getter(*names) if ours else function(*names, **kwargs)


class Pattern:
    """Attributes that a class pattern of a ``match`` statement compares with."""

    @property
    def type(self) -> str:
        """The device type reported as ``cuda``."""
        return _accelerator or "cuda"


def type_name(name: Any) -> Any:
    """A device type captured by a class pattern."""
    return "cuda" if _accelerator and name == _accelerator else name


def contains(words: str, value: Any) -> bool:
    """``words in value``, where the words are CUDA's out-of-memory message."""
    return words in value or (bool(_accelerator) and isinstance(value, str) and reports_out_of_memory(value))


def reports_out_of_memory(message: str) -> bool:
    """Whether a message reports that the accelerator, not CUDA, is out of memory."""
    return bool(re.search(rf"\b{re.escape(_accelerator)}\b[^\n]*\bout of memory", message, re.IGNORECASE))


def version_cuda(version: Any) -> Any:
    """``version.cuda``."""
    torch = sys.modules.get("torch")
    if _accelerator and torch is not None and version is torch.version:
        return rules.CUDA_VERSION
    return version.cuda


NAMES: dict[str, Any] = {
    "__isthmus_type__": device_type,
    "__isthmus_device_type__": mesh_device_type,
    "__isthmus_is_cuda__": is_cuda,
    "__isthmus_getattr__": get_attribute,
    "__isthmus_version_cuda__": version_cuda,
    "__isthmus_contains__": contains,
    "__isthmus_attrgetter__": attribute_getter,
    "__isthmus_pattern__": Pattern(),
    "__isthmus_type_name__": type_name,
}
