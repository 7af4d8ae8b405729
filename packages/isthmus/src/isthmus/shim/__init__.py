"""Run code written for CUDA on another accelerator.

``with isthmus.shim.enter():`` applies the shim inside a program; ``isthmus run`` applies it to a script and its child
processes. Both use :func:`install`.

Where to look: ``torch.cuda.*`` in cuda_module.py, ``x.cuda()`` in tensor_methods.py, functions that take a device in
devices.py, ``nccl`` in distributed.py, ``device.type`` and ``x.is_cuda`` in answers.py, installed libraries in
libraries.py. The names themselves are data in rules.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus_common.patches import Scope

FEATURE = "shim"

__all__ = ["FEATURE", "enter", "install"]


def enter() -> Scope:
    """Run code written for CUDA on the current accelerator until the returned scope exits.

    ``torch.cuda`` redirects to the accelerator, functions that take a device accept ``"cuda"``, and all code but
    PyTorch's reads the accelerator's devices as CUDA's. Exiting the scope restores everything. Does nothing if the
    accelerator is CUDA, or inside another such scope.

    Raises:
        isthmus.shim.accelerator.NoAccelerator: no accelerator is available.
        isthmus_common.patches.PatchError: a patch does not match the installed PyTorch version.
    """
    from isthmus.shim import accelerator, copies, proxies
    from isthmus_common.patches import Scope, active

    scope = Scope(FEATURE)
    if active(FEATURE):
        return scope
    try:
        current = accelerator.current()
        if not current.is_cuda:
            copies.install(scope)
            install(scope, lambda: proxies.enter(scope, current))
    except BaseException:
        scope.undo()
        raise
    return scope


def install(scope: Scope, enter_proxies: Callable[[], None]) -> None:
    """Install the patches of libraries, and enter the proxies once torch is imported.

    Does not import torch.

    Args:
        scope: undoes everything on exit.
        enter_proxies: called once torch is imported; immediately if it already is.
    """
    from isthmus.shim import libraries

    libraries.install(scope)
    scope.when_imported("torch", enter_proxies, "enters the proxies")
