"""The two lines that ``isthmus run`` writes to standard error: the device at the start, the operators at the end."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from isthmus import options
from isthmus.launch import counts
from isthmus.launch.counts import Counts
from isthmus_common import text
from isthmus_common.units import format_size

if TYPE_CHECKING:
    from isthmus.shim.accelerator import Accelerator

_SHOWN_ROUTES = {
    "delegate": "delegate",
    "kernel": "kernel",
    "decomposition": "decomposed",
    "fallback": "fallback",
}

_DEVICE = re.compile(r"([a-z]\w*)(?::(\d+))?|(\d+)", re.ASCII)

_is_main = False
_started: Accelerator | None = None
_pid = 0  # process that printed the start line; processes forked from it print nothing


class DeviceError(ValueError):
    """The requested device is not available; the message is one line."""


def expect() -> None:
    """Let this process, which runs the job's program, print the lines, if it is rank 0 and no parent has."""
    global _is_main
    first = os.environ.get("RANK", "0") == "0" and not options.switch("announced")
    _is_main = first and not options.switch("quiet")
    os.environ[options.variable("announced")] = "1"


def prints_lines() -> bool:
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
        accelerator.module.set_device(int(index))  # torch.accelerator's initializes the device


def print_start(accelerator: Accelerator) -> None:
    """``isthmus: cuda -> chip:0 (driver host, 1 device, 8.0 GiB)``."""
    global _started, _pid
    if accelerator.type == "cpu":
        _print("cuda -> cpu")
        return
    # A driver that cannot count its devices before it is initialized already is, by the search for an accelerator.
    is_initialized = getattr(accelerator.module, "is_initialized", lambda: False)()
    run = _succeeds if is_initialized else _succeeds_in_child
    if run(lambda: _print(_start(accelerator))):
        _started, _pid = accelerator, os.getpid()
        counts.collect()


def _succeeds(action: Callable[[], None]) -> bool:
    """Run a function and print its error, if it raises one; return whether it raised none."""
    try:
        action()
    except Exception as error:
        print(f"isthmus: {error}", file=sys.stderr, flush=True)
        return False
    return True


def _succeeds_in_child(action: Callable[[], None]) -> bool:
    """Run a function that initializes the device in a forked process; return whether it raised no error.

    A process that has initialized it cannot fork children that use it, which the program may do, as on CUDA.
    """
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # warning of a fork where threads run; the child only prints
        child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    status = 1
    try:
        status = 0 if _succeeds(action) else 1
    finally:
        os._exit(status)


def _start(accelerator: Accelerator) -> str:
    import torch

    count = torch.accelerator.device_count()
    facts = [f"driver {name}"] if (name := _driver_name(accelerator)) else []
    facts.append(text.count(count, "device"))
    facts.append(f"{_size(_total_bytes())}{'' if count == 1 else ' each'}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        facts.append(f"world size {os.environ['WORLD_SIZE']}")
    index = torch.accelerator.current_device_index()
    return f"cuda -> {accelerator.type}:{index} ({', '.join(facts)})"


def print_hidden() -> None:
    """Report that the program sees no device, if this process prints lines."""
    if _is_main:
        from isthmus.shim.accelerator import HIDDEN

        _print(HIDDEN.format(os.environ.get("CUDA_VISIBLE_DEVICES")))


def print_patched(library: str, count: int) -> None:
    """``isthmus: transformers: 38 of its functions by isthmus.ops``, if this process prints lines."""
    if _is_main:
        _print(f"{library}: {count} of its functions by isthmus.ops")


def print_end() -> None:
    """Print operators by route, peak memory and changes of device, if there was a start line.

    Child processes that have ended are included; the peak is that of the process with the largest.
    """
    if _started is None or os.getpid() != _pid:
        return
    import torch

    if not torch.accelerator.device_count():  # the program has hidden them since
        print_hidden()
        return
    found = Counts.of_process(_started)
    for child in counts.collected_counts():
        found.add(child)
    parts = []
    if is_counted := hasattr(_started.module, "dispatch_stats"):
        parts.append(_operators(found.operators))
    total = _size(_total_bytes())
    parts.append(
        f"peak {_size(found.peak).removesuffix(total[-4:])} of {total}"
    )  # a common unit is printed once
    if is_counted:
        parts.append(f"set_device {found.set_device}")
    _print(" · ".join(parts))


def _size(count: int) -> str:
    """Bytes in GiB, and in MiB below one."""
    return format_size(count, ("MiB", "GiB"))


def _operators(operators: dict[str, str]) -> str:
    """Operators that computed something, counted by route; views and metadata are not counted."""
    numbers = Counter(operators.values())
    routes = ", ".join(f"{numbers[route]} {label}" for route, label in _SHOWN_ROUTES.items())
    return f"{text.count(sum(numbers[route] for route in _SHOWN_ROUTES), 'operator')}: {routes}"


def _driver_name(accelerator: Accelerator) -> str:
    driver = getattr(accelerator.module, "driver", None)
    return str(driver()["name"]) if driver else ""


def _total_bytes() -> int:
    import torch

    return torch.accelerator.get_memory_info()[1]


def _print(line: str) -> None:
    sys.stdout.flush()
    print(f"isthmus: {line}", file=sys.stderr, flush=True)
