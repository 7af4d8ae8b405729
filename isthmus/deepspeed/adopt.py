"""Handing DeepSpeed its accelerator before it looks for one."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from isthmus._support.patches import Scope

FEATURE = "deepspeed"
VARIABLE = "DS_ACCELERATOR"
MODULE = "deepspeed.accelerator.real_accelerator"

_scope = Scope(FEATURE)


def adopt() -> None:
    """Give DeepSpeed its accelerator as soon as it is imported. Imports nothing of it; a second call does nothing.

    Raises:
        RuntimeError: DeepSpeed is imported already and has chosen another accelerator.
    """
    if _scope.patches:
        return
    _scope.when_imported(MODULE, set_accelerator, "DeepSpeed is handed its accelerator when it is imported")


def undo() -> None:
    """Take the accelerator back; DeepSpeed looks for one of its own then."""
    _scope.undo()


def set_accelerator() -> None:
    """Set DeepSpeed's accelerator, unless it has its own for this device or DS_ACCELERATOR names another.

    Raises:
        RuntimeError: DeepSpeed has chosen another already.
    """
    device = torch.accelerator.current_accelerator()
    real: Any = sys.modules[MODULE]
    if device is None or device.type in real.SUPPORTED_ACCELERATOR_LIST:
        return
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", "cuda", device.type):  # a script's "cuda" stands for the device
        return
    from isthmus.deepspeed.accelerator import Accelerator

    chosen = real.ds_accelerator
    if isinstance(chosen, Accelerator):
        return
    if chosen is not None:  # what was imported with it, its operators for one, is bound to it
        raise RuntimeError(
            f"DeepSpeed has chosen the accelerator {chosen._name!r} already; import isthmus.deepspeed ahead of "
            f"deepspeed, or set {VARIABLE}={device.type}"
        )
    real.set_accelerator(Accelerator(device.type))
    _scope.record(
        f"{MODULE}.ds_accelerator",
        "DeepSpeed has none for this device",
        lambda: real.__setattr__("ds_accelerator", None),
    )
