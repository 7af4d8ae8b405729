"""Set DeepSpeed's accelerator before DeepSpeed selects one."""

import functools
import os
import sys
from typing import Any

import torch

from isthmus.shim import extensions
from isthmus_common.patches import Scope

FEATURE = "deepspeed"
VARIABLE = "DS_ACCELERATOR"
MODULE = "deepspeed.accelerator.real_accelerator"

_scope = Scope(FEATURE)


def adopt() -> None:
    """Set DeepSpeed's accelerator once DeepSpeed is imported. A second call does nothing.

    Raises:
        RuntimeError: DeepSpeed is already imported and has selected another accelerator.
    """
    if _scope.patches:
        return
    _scope.when_imported(MODULE, set_accelerator, "sets DeepSpeed's accelerator")
    lock = functools.partial(extensions.replace_lock, _scope)
    _scope.when_imported(extensions.MODULE, lock, "DeepSpeed compiles optimizers of the host")


def undo() -> None:
    """Unset the accelerator; DeepSpeed then selects one itself."""
    _scope.undo()


def set_accelerator() -> None:
    """Set DeepSpeed's accelerator, unless it has its own for this device or DS_ACCELERATOR names another.

    Raises:
        RuntimeError: DeepSpeed has already selected another.
    """
    device = torch.accelerator.current_accelerator()
    real: Any = sys.modules[MODULE]
    if device is None or device.type in real.SUPPORTED_ACCELERATOR_LIST:
        return
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", "cuda", device.type):  # "cuda" means the current accelerator
        return
    from isthmus.deepspeed.accelerator import Accelerator

    chosen = real.ds_accelerator
    if isinstance(chosen, Accelerator):
        return
    if chosen is not None:  # modules imported before are bound to it
        raise RuntimeError(
            f"DeepSpeed has already selected the accelerator {chosen._name!r}; import isthmus.deepspeed before "
            f"deepspeed, or set {VARIABLE}={device.type}"
        )
    real.set_accelerator(Accelerator(device.type))
    _scope.record(
        f"{MODULE}.ds_accelerator",
        "DeepSpeed does not support this device itself",
        lambda: real.__setattr__("ds_accelerator", None),
    )
