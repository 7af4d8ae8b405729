"""The operators called by a run of ``isthmus bisect``, and which of them can be forced to another route."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus_common.files import write_file

OWN_ROUTES = ("kernel", "delegate")
_REFERENCES = ("decomposition", "delegate", "fallback")


@dataclass(frozen=True)
class Called:
    """Operator packets (``aten::mm``) called on the chip's own route.

    Attributes:
        operators: those that can be forced to the reference route.
        random: those that draw random numbers; another route would draw others.
        routeless: those with a called overload that lacks the reference route.
        refused: those with a call that no route served.
    """

    operators: tuple[str, ...] = ()
    random: tuple[str, ...] = ()
    routeless: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def read(folder: Path, route: str) -> Called:
    """Read the files written by the processes of a run.

    Args:
        folder: of the files.
        route: reference route.
    """
    own: set[str] = set()
    random: set[str] = set()
    unable: set[str] = set()
    refused: set[str] = set()
    for path in folder.glob("*.json"):
        for name, entry in json.loads(path.read_text()).items():
            packet = name.partition(".")[0]
            if entry.get("refused"):
                refused.add(packet)
            if entry["route"] in OWN_ROUTES:
                own.add(packet)
                random |= {packet} if entry.get("random") else set()
                unable |= set() if route in entry.get("routes", (route,)) else {packet}
    groups = (own - unable - random, random, unable - random, refused)
    return Called(*(tuple(sorted(names)) for names in groups))


def write(folder: Path) -> None:
    """Write the operators that this process called (ISTHMUS_DEBUG_CALLS)."""
    import torch

    chip = getattr(torch, "chip")  # noqa: B009 - this package puts it there
    stats = chip.dispatch_stats()
    called = stats["operators"]
    for name, count in stats["refused"].items():
        called.setdefault(name, {"route": "none", "calls": 0})["refused"] = count
    # The reference routes end on the CPU: an operator without a CPU kernel is never forced.
    found = {n: e for n, e in called.items() if torch._C._dispatch_has_kernel_for_dispatch_key(n, "CPU")}
    served = {route: _served_overloads(chip, route) for route in _REFERENCES}
    for name, entry in found.items():
        if entry["route"] in OWN_ROUTES:
            entry["random"] = _is_random(name)
            entry["routes"] = [route for route in _REFERENCES if name in served[route]]
    write_file(folder / f"{os.getpid()}.json", json.dumps(found).encode())


def _is_random(name: str) -> bool:
    import torch

    from isthmus_diagnostics.debug.intercept import overload_named

    op = overload_named(name)
    declared = any(str(a.type).endswith("Generator]") for a in op._schema.arguments)
    return declared or torch.Tag.nondeterministic_seeded in op.tags


def _served_overloads(chip: Any, route: str) -> set[str]:
    """Return the overloads that have a route; tried by forcing it, since the process is about to end."""
    try:
        chip.set_route("*", route)
    except ValueError:  # none has it
        return set()
    return {name for name, (taken, reason) in chip.routes().items() if (taken, reason) == (route, "forced")}
