"""Recorder inside a process of a traced job; writes the process's part of the record."""

import atexit
import builtins
import functools
import os
import sys
from pathlib import Path

from isthmus._support.after_import import when_imported
from isthmus._support.patches import Scope
from isthmus.migrate.trace import calls, sinks
from isthmus.migrate.trace.instrument import instrument
from isthmus.migrate.trace.places import REGISTRY

VARIABLE = "_ISTHMUS_TRACE"

_scope = Scope("trace")


def start() -> None:
    """Record this process, if it belongs to a traced job. Called ahead of the shim; does not import torch."""
    from isthmus import shim
    from isthmus.launch import process
    from isthmus.shim import rewrite

    REGISTRY.folder = Path(os.environ[VARIABLE])
    process.scope = sinks.SinkScope(shim.FEATURE)
    vars(builtins).update(calls.NAMES)
    rewrite.PASSES.append(instrument)
    sinks.install(_scope)
    when_imported("torch", functools.partial(sinks.install_torch, _scope))
    when_imported("multiprocessing.util", _write_before_exit)
    os.register_at_fork(after_in_child=REGISTRY.forget)
    atexit.register(REGISTRY.write)


def _write_before_exit() -> None:
    """Also write in forked workers of multiprocessing, which skip atexit."""
    util = sys.modules["multiprocessing.util"]
    util.register_after_fork(REGISTRY, lambda registry: util.Finalize(None, registry.write, exitpriority=0))
