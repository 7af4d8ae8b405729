"""Text of devices and tensors in rewritten source: the accelerator's devices read as CUDA's.

Covers ``str``, ``repr``, ``format``, f-strings, ``"...".format`` and ``"..." % ...``. ``print(x)`` and logging show
the real device.
"""

import sys
from collections.abc import Callable
from typing import Any

from isthmus.shim import answers, rules

_CONTAINERS = (list, tuple, dict, set, frozenset)


def text(function: Any, value: Any) -> Any:
    """``str(value)`` or ``repr(value)``, translated for devices, tensors and out-of-memory errors."""
    found = function(value)
    if function not in (str, repr) or not answers.accelerator() or isinstance(value, str):
        return found
    if function is str and isinstance(value, RuntimeError) and answers.reports_out_of_memory(found):
        return found if rules.OUT_OF_MEMORY in found else f"{rules.OUT_OF_MEMORY}. {found}"
    return _translate(value, found)


def _translate(value: Any, found: str) -> str:
    """The text of a device, or of an object that shows devices: ``device='chip:0'``, ``device(type='chip')``."""
    if answers.is_ours(value):
        return found.replace(answers.accelerator(), "cuda", 1)
    for before in ("device='", "device(type='"):
        found = found.replace(before + answers.accelerator(), before + "cuda")
    return found


class _Shown:
    """A value that formats like ``value`` does on CUDA, and has its attributes and items."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __str__(self) -> str:
        return str(text(str, self._value))

    def __repr__(self) -> str:
        return str(text(repr, self._value))

    def __format__(self, spec: str) -> str:
        return _translate(self._value, format(self._value, spec))

    def __int__(self) -> int:
        return int(self._value)

    def __float__(self) -> float:
        return float(self._value)

    def __getattr__(self, name: str) -> Any:
        return answers.get_attribute(getattr, self._value, name)

    def __getitem__(self, key: Any) -> Any:
        return shown(self._value[key])


def shown(value: Any) -> Any:
    """``value`` in a place that formats it."""
    torch = sys.modules.get("torch")
    if torch is None or not answers.accelerator():
        return value
    is_tensor = isinstance(value, torch.Tensor) and value.device.type == answers.accelerator()
    return _Shown(value) if is_tensor or answers.is_ours(value) or type(value) in _CONTAINERS else value


def format_text(function: Any, *args: Any, **kwargs: Any) -> Any:
    """``function(...)``, a method named ``format``; of text if the function is that of ``str``."""
    if type(getattr(function, "__self__", None)) is not str:
        return function(*args, **kwargs)
    return function(*map(shown, args), **{name: shown(value) for name, value in kwargs.items()})


def percent(template: str, values: Any) -> str:
    """``template % values``."""
    if type(values) is tuple:
        return template % tuple(map(shown, values))
    if type(values) is dict:
        return template % {name: shown(value) for name, value in values.items()}
    return template % shown(values)


NAMES: dict[str, Callable[..., Any]] = {
    "__isthmus_str__": text,
    "__isthmus_shown__": shown,
    "__isthmus_format__": format_text,
    "__isthmus_percent__": percent,
}
