"""Preparation of each Python process of a job: enters the shim as soon as torch is imported."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType

from isthmus import options, shim
from isthmus.launch import stacks
from isthmus_common.options import start
from isthmus_common.package_folders import is_users
from isthmus_common.patches import Scope

MAIN = "isthmus.launch.main"

_MANY = 1 << 16

# `isthmus migrate trace` puts its own in place before install().
scope = Scope(shim.FEATURE)
compile_program: Callable[[bytes | str, str], CodeType] = partial(compile, mode="exec", dont_inherit=True)
_reporter: object = None  # kept alive: multiprocessing refers to it weakly


def prepare() -> None:
    """Prepare this process; sitecustomize calls it before the program runs. Does not import torch.

    ``python script.py``, with the user's own script, becomes ``python -m isthmus.launch.main script.py``, which
    prints the lines of the job, and hints for what is not installed.
    """
    program = _program()
    if program is not None:
        os.execv(sys.executable, [sys.executable, *program])
    install()


def _program() -> list[str] | None:
    """Arguments of Python that run the program of this process by our launcher; None to run it as it is."""
    script, arguments = (sys.argv[0] if sys.argv else ""), sys.argv[1:]
    before = sys.orig_argv[1 : len(sys.orig_argv) - len(arguments)]
    if script in ("", "-"):
        is_ours = not (sys.flags.interactive or sys.flags.inspect or os.isatty(0))
    else:
        is_ours = script not in ("-c", "-m") and Path(script).is_file() and is_users(script)
    options = before[:-1] if script else before
    return [*options, "-m", MAIN, script, *arguments] if is_ours else None


def install() -> None:
    """Enter the proxies when torch is imported. Once per process."""
    if not scope.patches:
        _prepare_rank()
        shim.install(scope, _enter)
        for library in filter(None, map(str.strip, options.text("patch").split(","))):
            scope.when_imported(library, partial(_patch, library), "ISTHMUS_PATCH names it")


def _prepare_rank() -> None:
    """Let a rank write its stack on request, and end when its launcher is killed; does nothing in other processes."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or os.getsid(0) != os.getpid():  # a rank leads its session
        return
    stacks.listen()
    from isthmus_common.parent import end_with_parent

    end_with_parent(signal.SIGTERM)


def _enter() -> None:
    from isthmus import rendezvous
    from isthmus.binaries import NotBuilt

    try:
        from isthmus.launch import counts, lines
        from isthmus.shim import accelerator, proxies
    except NotBuilt as error:
        sys.exit(f"isthmus: {error}")
    from isthmus_common.patches import PatchError

    global _reporter

    rendezvous.install()
    try:
        if _are_devices_hidden():
            scope.undo()
            lines.print_hidden()
            start("job")
            return
        current = accelerator.current(check=lines.prints_lines())
        if not current.is_cuda:
            proxies.enter(scope, current)
        lines.set_default_device(current)
    except lines.DeviceError as error:  # wrong usage, with the exit status of isthmus run for it
        print(f"isthmus: {error}", file=sys.stderr)
        sys.exit(2)
    except (accelerator.NoAccelerator, NotBuilt, PatchError) as error:
        sys.exit(f"isthmus: {error}")
    if lines.prints_lines():
        lines.print_start(current)
    if options.text("counts") and hasattr(current.module, "is_initialized"):
        _reporter = counts.Reporter(current, is_child=not lines.prints_lines())
    start("job")


def _are_devices_hidden() -> bool:
    """Whether CUDA_VISIBLE_DEVICES hides every device, as an empty value, -1, and 8 of 8 devices do."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return False
    import torch

    from isthmus import _C

    devices = torch.accelerator.device_count() or _MANY  # without a device, that is what is reported
    return not _C.numbers_for_cuda(visible, devices)


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
