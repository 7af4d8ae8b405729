"""Enters all proxies of the shim, in an order in which each finds what it needs unpatched."""

from __future__ import annotations

from isthmus._support.patches import Scope
from isthmus.shim import (
    answers,
    attention,
    cpu,
    cuda_module,
    data_parallel,
    devices,
    distributed,
    extensions,
    library,
    profiling,
    script,
    serialization,
    storages,
)
from isthmus.shim.accelerator import Accelerator


def enter(scope: Scope, accelerator: Accelerator) -> None:
    """Apply every proxy to PyTorch; the scope undoes them."""
    before = answers.set_accelerator(accelerator.type)
    scope.record("isthmus.shim.answers", "rewritten source learns the device type", lambda: _restore(before))
    library.install(scope, accelerator)
    devices.install(scope, accelerator)
    storages.install(scope, accelerator)
    cuda_module.install(scope, accelerator)
    serialization.install(scope, accelerator)
    distributed.install(scope, accelerator)
    script.install(scope, accelerator)
    data_parallel.install(scope, accelerator)
    profiling.install(scope, accelerator)
    attention.install(scope)
    extensions.install(scope, accelerator)
    cpu.install(scope, accelerator)


def _restore(before: str) -> None:
    answers.set_accelerator(before)
