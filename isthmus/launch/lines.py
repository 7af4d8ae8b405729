"""The two lines that ``isthmus run`` writes to standard error: the device at the start, the operators at the end."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

from isthmus import options
from isthmus._support import text

if TYPE_CHECKING:
    from isthmus.shim.accelerator import Accelerator

_GIB = 1 << 30
_SHOWN_ROUTES = {
    "delegate": "delegate",
    "kernel": "kernel",
    "decomposition": "decomposed",
    "fallback": "fallback",
}

_DEVICE = re.compile(r"([a-z]\w*)(?::(\d+))?|(\d+)", re.ASCII)

_is_main = False
_started: Accelerator | None = None


class DeviceError(ValueError):
    """The requested device is not available; the message is one line."""


def expect() -> None:
    """Let this process, which runs the job's program, print the lines, if it is rank 0 and no parent has."""
    global _is_main
    first = os.environ.get("RANK", "0") == "0" and not options.switch("announced")
    _is_main = first and not options.switch("quiet")
    os.environ[options.variable("announced")] = "1"


def expected() -> bool:
    """Whether this process prints the lines."""
    return _is_main


def set_default_device(accelerator: Accelerator) -> None:
    """Make the device that ISTHMUS_DEVICE names current.

    Raises:
        DeviceError: the name is not a device, or that device is not available.
    """
    asked = options.text("device")
    if not asked:
        return
    # isthmus run passes its option on in the variable, so the two cannot be told apart.
    given, match = f"--device {asked} (or ISTHMUS_DEVICE)", _DEVICE.fullmatch(asked)
    if match is None:
        raise DeviceError(f"{given}: not a device; give its number or, for example, {accelerator.type}:0")
    kind, index = match[1], match[2] or match[3]
    if kind not in (None, "cuda", accelerator.type):
        raise DeviceError(f"{given}: the accelerator of this machine is {accelerator.type}")
    import torch

    count = torch.accelerator.device_count()
    if index and int(index) >= count:
        raise DeviceError(f"{given}: {text.count(count, 'device')} available, numbered from 0")
    if index:
        torch.accelerator.set_device_index(int(index))


def print_start(accelerator: Accelerator) -> None:
    """``isthmus: cuda -> chip:0 (driver host, 1 device, 8.0 GiB)``."""
    global _started
    import torch

    if accelerator.type == "cpu":
        _print("cuda -> cpu")
        return
    _started = accelerator
    count = torch.accelerator.device_count()
    facts = [f"driver {name}"] if (name := _driver_name(accelerator)) else []
    facts.append(text.count(count, "device"))
    facts.append(f"{_size(_total_bytes())}{'' if count == 1 else ' each'}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        facts.append(f"world size {os.environ['WORLD_SIZE']}")
    index = torch.accelerator.current_device_index()
    _print(f"cuda -> {accelerator.type}:{index} ({', '.join(facts)})")


def print_hidden() -> None:
    """Report that the program sees no device, if this process prints lines."""
    if _is_main:
        _print(
            f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']} hides every device; unset it to use one"
        )


def print_patched(library: str, count: int) -> None:
    """``isthmus: transformers: 38 of its functions by isthmus.ops``, if this process prints lines."""
    if _is_main:
        _print(f"{library}: {count} of its functions by isthmus.ops")


def print_end() -> None:
    """Print operators by route, peak memory and changes of device, if there was a start line."""
    if _started is None:
        return
    import torch

    parts = []
    stats = getattr(_started.module, "dispatch_stats", None)
    found: dict[str, Any] = stats() if stats else {}
    if found:
        parts.append(_operators(found["operators"]))
    peak = max(torch.accelerator.max_memory_allocated(i) for i in range(torch.accelerator.device_count()))
    total = _size(_total_bytes())
    parts.append(f"peak {_size(peak).removesuffix(total[-4:])} of {total}")  # a common unit is printed once
    if found:
        parts.append(f"set_device {found['set_device']}")
    _print(" · ".join(parts))


def _size(count: int) -> str:
    """Bytes in GiB, and in MiB below one."""
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / (1 << 20):.1f} MiB"


def _operators(operators: dict[str, dict[str, Any]]) -> str:
    """Operators that computed something, counted by route; views and metadata are not counted."""
    counts = dict.fromkeys(_SHOWN_ROUTES, 0)
    for entry in operators.values():
        if entry["route"] in counts:
            counts[entry["route"]] += 1
    routes = ", ".join(f"{counts[route]} {label}" for route, label in _SHOWN_ROUTES.items())
    return f"{text.count(sum(counts.values()), 'operator')}: {routes}"


def _driver_name(accelerator: Accelerator) -> str:
    driver = getattr(accelerator.module, "driver", None)
    return str(driver()["name"]) if driver else ""


def _total_bytes() -> int:
    import torch

    return torch.accelerator.get_memory_info()[1]


def _print(line: str) -> None:
    sys.stdout.flush()
    print(f"isthmus: {line}", file=sys.stderr, flush=True)
