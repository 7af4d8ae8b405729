"""Preparation of each Python process of a job: enters the shim as soon as torch is imported."""

import os
import signal
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from isthmus import options, shim
from isthmus._support.patches import Scope
from isthmus.launch import stacks
from isthmus.shim import import_hook

MAIN = "isthmus.launch.main"

scope = Scope(shim.FEATURE)  # `isthmus migrate trace` puts its own in place before install()
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def prepare() -> None:
    """Prepare this process; sitecustomize calls it before the program runs. Does not import torch.

    ``python script.py``, with the user's own script, is replaced by ``python -m isthmus.launch.main script.py``: the
    interpreter compiles its main program itself, so it cannot be rewritten otherwise.
    """
    before = _options_before_script()
    if before is not None:
        os.execv(sys.executable, [sys.executable, *before, "-m", MAIN, *sys.argv])
    install()


def _options_before_script() -> list[str] | None:
    """Interpreter options of ``python [options] script.py ...``; None for any other program."""
    script = sys.argv[0] if sys.argv else ""
    if script in ("", "-", "-c", "-m") or not Path(script).is_file() or not import_hook.is_users(script):
        return None
    return sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv)]


def install() -> None:
    """Rewrite the user's modules from now on and enter the proxies when torch is imported. Once per process."""
    if not scope.patches:
        _prepare_rank()
        shim.install(scope, _enter)
        for library in filter(None, options.text("patch").split(",")):
            scope.when_imported(library, partial(_patch, library), "ISTHMUS_PATCH names it")


def _prepare_rank() -> None:
    """If this process is a rank, let it write its stack on request, and end when its launcher is killed."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or os.getsid(0) != os.getpid():  # a rank leads its session
        return
    stacks.listen()
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _enter() -> None:
    from isthmus._support.patches import PatchError
    from isthmus.launch import lines
    from isthmus.shim import accelerator, proxies

    try:
        current = accelerator.current(check=lines.expected())
        lines.set_default_device(current)
        if not current.is_cuda:
            proxies.enter(scope, current)
    except lines.DeviceError as error:  # wrong usage, with the exit status of isthmus run for it
        print(f"isthmus: {error}", file=sys.stderr)
        sys.exit(2)
    except (accelerator.NoAccelerator, PatchError) as error:
        sys.exit(f"isthmus: {error}")
    if lines.expected():
        lines.print_start(current)
    if hasattr(current.module, "set_route"):
        import_module("isthmus.debug").listen()  # by name: tools stand above this layer
    if options.switch("megatron"):
        import_module("isthmus.megatron")  # the import adapts


def _patch(library: str) -> None:
    """Put the operators under a library that is being imported; imports the modules of it that are patched."""
    import torch  # noqa: F401 -- first: its own patch would find isthmus.ops half imported

    from isthmus import ops
    from isthmus.launch import lines

    patched = ops.patch(library)
    lines.print_patched(library, len(patched.replaced))
    scope.record(patched.library, "isthmus run --patch: its functions by isthmus.ops", patched.undo)
    for target, why in patched.left.items():
        print(f"isthmus: {target} is not patched: {why}", file=sys.stderr)
