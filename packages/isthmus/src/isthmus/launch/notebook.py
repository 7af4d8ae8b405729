"""``%load_ext isthmus``: a notebook's cells see the accelerator as CUDA, as a script does under ``isthmus run``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from isthmus import shim
from isthmus_common import patches
from isthmus_common.text import count

if TYPE_CHECKING:
    from isthmus_common.patches import Scope

_scope: Scope | None = None


def load() -> None:
    """Enter the shim for the whole kernel, and print the device; where it cannot, print why."""
    global _scope
    if patches.active(shim.FEATURE):  # loaded already, or the kernel runs under `isthmus run`
        return
    from isthmus.shim import accelerator

    try:
        _scope = shim.enter()
        current = accelerator.current()
    except (accelerator.NoAccelerator, patches.PatchError) as error:
        print(f"isthmus: {error}", file=sys.stderr)
        return
    if not current.is_cuda:
        devices = count(current.module.device_count(), "device")
        print(f"isthmus: cuda -> {current.type} ({devices})", file=sys.stderr)


def unload() -> None:
    """Leave the shim that load() entered."""
    global _scope
    if _scope is not None:
        _scope.undo()
        _scope = None
