"""The versions of PyTorch in which names of converted source appeared, and what is written for older ones.

Source: the Python files of the released wheels of PyTorch 2.1 to 2.10.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Version = tuple[int, ...]

OLDEST: Version = (2, 1)
_MEMORY_ON_MPS: Version = (2, 13)  # before, torch.accelerator's memory functions raise on MPS
COUNTS_WITHOUT_CUDA: Version = (2, 8)  # torch.accelerator.device_count does not initialize CUDA
_MEMORY = (
    "empty_cache memory_allocated memory_reserved max_memory_allocated max_memory_reserved memory_stats "
    "reset_peak_memory_stats reset_accumulated_memory_stats"
)

# The name as templates of rules write it, without `torch.`.
SINCE: Mapping[str, Version] = {
    "accelerator.current_accelerator(check_available=True)": (2, 7),
    **dict.fromkeys(
        (
            f"accelerator.{name}"
            for name in "current_accelerator is_available device_count set_device_index current_device_index "
            "set_stream synchronize".split()
        ),
        (2, 6),
    ),
    **dict.fromkeys((f"accelerator.{name}" for name in _MEMORY.split()), (2, 9)),
    "accelerator.get_memory_info": (2, 10),
    "get_device_module": (2, 4),
    "distributed.get_default_backend_for_device": (2, 6),
    "OutOfMemoryError": (2, 4),
    "AcceleratorError": (2, 8),
    "Event": (2, 4),
    "amp.GradScaler": (2, 3),
    "amp.custom_fwd": (2, 4),
    "amp.custom_bwd": (2, 4),
    "get_autocast_dtype": (2, 4),
    "set_autocast_dtype": (2, 4),
    "is_autocast_enabled(device_type)": (2, 4),
}
# Functions of the CPU's module, which a converted call of {module} uses without an accelerator.
_OF_CPU: Mapping[str, Version] = {"set_device": (2, 2), "current_device": (2, 2), "Event": (2, 2)}

_PLAIN = {name: since for name, since in SINCE.items() if "(" not in name}
_NAME = re.compile(rf"(?<![\w.])torch\.({'|'.join(sorted(map(re.escape, _PLAIN), key=len, reverse=True))})\b")
_ALIAS = re.compile(
    r"^\s*(?:import (torch(?:\.\w+)?) as|from torch import (distributed)(?: as)?) *(\w*)", re.MULTILINE
)
_AVAILABLE = "accelerator.current_accelerator(check_available=True)"
_COUNTED = "current_accelerator() if torch.accelerator.device_count()"
_ENABLED = re.compile(r"\.is_autocast_enabled\([^)]")

_MODULE = "getattr(torch, {type})"
_OLD: Mapping[str, str] = {
    **{f"torch.accelerator.{name}": f"{{module}}.{name}" for name in _MEMORY.split()},
    "torch.accelerator.get_memory_info": "{module}.mem_get_info",
    "torch.accelerator.set_stream": "{module}.set_stream",
    "torch.accelerator.set_device_index": "{module}.set_device",
    "torch.accelerator.synchronize": "{module}.synchronize",
    "torch.accelerator.current_device_index": "{module}.current_device",
}
# Values without a target, where the device is CUDA's or the CPU: see constants.device_value.
_CUDA_OR_CPU: Mapping[str, str] = {
    "torch.accelerator.is_available": "torch.cuda.is_available",
    "torch.accelerator.device_count": "torch.cuda.device_count",
}
_TARGET: Mapping[str, str] = {
    "torch.accelerator.is_available": "{module}.is_available",
    "torch.accelerator.device_count": "{module}.device_count",
}


def parse(text: str) -> Version:
    """Return a version from ``"2.1"``.

    Raises:
        ValueError: it is not a version, or older than the names are known for.
    """
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", text):
        raise ValueError(f"{text}: not a version of PyTorch; expected one such as 2.6")
    version = tuple(map(int, text.split(".")[:2]))
    if version < OLDEST:
        raise ValueError(f"{text}: PyTorch before {format_version(OLDEST)} is not supported")
    return version


def format_version(version: Version) -> str:
    """Return a version as text."""
    return ".".join(map(str, version))


def needed_version(version: Version) -> str:
    """Return the result of :func:`minimum` as text, with the later version that MPS needs for memory functions."""
    later = f" ({format_version(_MEMORY_ON_MPS)} on MPS)"
    return format_version(version) + (
        later if SINCE["accelerator.memory_stats"] <= version < _MEMORY_ON_MPS else ""
    )


def write_template(template: str, torch: Version, target: str) -> tuple[str, str]:
    """Return a rule's template for a version of PyTorch, and why it cannot be written for it, or "".

    Args:
        template: see :class:`isthmus_migrate.rules.draft.Draft`.
        torch: the oldest version that has to run the result; () for any.
        target: device type to convert for, or "".
    """
    if not torch:
        return template, ""
    of_module = re.findall(r"\{module\}\.(\w+)", template) if not target else ()  # it may be the CPU's
    for new, old in {**_OLD, **(_TARGET if target else _CUDA_OR_CPU)}.items():
        if torch < SINCE[new.removeprefix("torch.")]:
            template = re.sub(rf"{re.escape(new)}\b", old, template)
    why = find_missing(template, torch)
    for name in of_module:
        if torch < _OF_CPU.get(name, torch):
            why = why or f"torch.cpu.{name} exists since PyTorch {format_version(_OF_CPU[name])}"
    if torch < SINCE["get_device_module"]:
        template = template.replace("{module}", _MODULE)
    return template, why


def is_for_cuda(torch: Version, target: str) -> bool:
    """Whether the result runs on CUDA and the CPU only: without ``torch.accelerator``, and without a target."""
    return bool(torch) and not target and torch < SINCE["accelerator.is_available"]


def find_missing(source: str, torch: Version) -> str:
    """Return why source does not run on a version of PyTorch, or "".

    Args:
        source: what converted source contains, or the name of :data:`SINCE` that it uses.
        torch: the version; () for any.
    """
    names = [source] if source in SINCE else _NAME.findall(source)
    late = [name for name in names if torch and torch < SINCE[name]]
    return f"torch.{late[0]} exists since PyTorch {format_version(SINCE[late[0]])}" if late else ""


def minimum(before: str, after: str) -> Version:
    """Return the oldest PyTorch that has the names in the changed lines of a source; () if any has them."""
    lines = "\n".join(sorted(set(after.splitlines()) - set(before.splitlines())))
    for name, part, alias in set(_ALIAS.findall(after)):
        lines = re.sub(rf"(?<![\w.]){alias or part}\.", f"{name or f'torch.{part}'}.", lines)
    found = [SINCE[name] for name in _NAME.findall(lines)]
    found += [SINCE[_AVAILABLE]] * (_AVAILABLE in lines)
    found += [COUNTS_WITHOUT_CUDA] * (_COUNTED in lines)
    found += [SINCE["is_autocast_enabled(device_type)"]] * bool(_ENABLED.search(lines))
    return max(found, default=())
