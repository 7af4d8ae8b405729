"""Recorder inside a process of a traced job; writes the process's part of the record."""

import atexit
import builtins
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from isthmus_common.after_import import when_imported
from isthmus_common.patches import Scope
from isthmus_migrate.options import TABLE
from isthmus_migrate.trace import calls, import_hook, sinks
from isthmus_migrate.trace.places import REGISTRY

VARIABLE = TABLE.variable("migrate_trace")

_scope = Scope("trace")


def start() -> None:
    """Record this process, if it belongs to a traced job. Called ahead of the shim; does not import torch."""
    from isthmus import shim
    from isthmus.launch import process

    REGISTRY.folder = Path(os.environ[VARIABLE])
    process.scope = sinks.SinkScope(shim.FEATURE)
    process.compile_program = import_hook.compile_source
    vars(builtins).update(calls.NAMES)
    import_hook.install(_scope)
    sinks.install(_scope)
    when_imported("torch", functools.partial(sinks.install_torch, _scope))
    _scope.replace("os._exit", _writing, "ends forked workers without atexit")
    os.register_at_fork(after_in_child=REGISTRY.forget)
    atexit.register(REGISTRY.write)


def _writing(leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    def leave_at_once(status: int) -> NoReturn:
        REGISTRY.write()
        leave(status)

    return leave_at_once
