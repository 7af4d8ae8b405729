"""Dispatch keys of CUDA as objects: guards, sets and thread-local state name the accelerator's keys.

Registrations take the names of keys (custom_operators.py). Both are translated, or a kernel that excludes the key
that it is registered for would call itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from isthmus.shim import rules
from isthmus.shim.accelerator import Accelerator
from isthmus_common.patches import Scope


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Translate ``DispatchKey.CUDA``, ``AutogradCUDA`` and their like where PyTorch takes a key."""
    keys = vars(torch._C.DispatchKey)
    names = [prefix + "CUDA" for prefix in rules.KEY_PREFIXES]
    table = {keys[name]: keys[accelerator.key(name)] for name in names}
    for target in rules.DISPATCH_KEYS:
        scope.replace(target, functools.partial(_translating, table), "its key may be one of CUDA's")


def _translating(table: dict[Any, Any], original: Callable[..., Any]) -> Callable[..., Any]:
    key = type(next(iter(table)))

    @functools.wraps(original)
    def function(*args: Any) -> Any:
        return original(*[table.get(arg, arg) if type(arg) is key else arg for arg in args])

    return function
