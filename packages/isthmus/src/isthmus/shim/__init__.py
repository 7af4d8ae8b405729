"""Run code written for CUDA on another accelerator.

``with isthmus.shim.enter():`` applies the shim inside a program; ``isthmus run`` applies it to a script and its child
processes. Both use :func:`install`.

Where to look: ``torch.cuda.*`` in cuda_module.py, ``x.cuda()`` in tensor_methods.py, functions that take a device in
devices.py, ``nccl`` in distributed.py, installed libraries in libraries.py, rewritten source in rewrite.py. The names
themselves are data in rules.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus_common.patches import Scope

FEATURE = "shim"

__all__ = ["FEATURE", "enter", "install"]


def enter(rewrite: bool = True) -> Scope:
    """Run code written for CUDA on the current accelerator until the returned scope exits.

    ``torch.cuda`` redirects to the accelerator, and functions that take a device accept ``"cuda"``. The user's own
    modules imported inside the scope are rewritten where no proxy can reach (rules.SYNTAX). Exiting the scope
    restores everything. Does nothing if the accelerator is CUDA, or inside another such scope.

    Args:
        rewrite: also install the import hook.

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
            install(scope, lambda: proxies.enter(scope, current), rewrite=rewrite)
    except BaseException:
        scope.undo()
        raise
    return scope


def install(scope: Scope, enter_proxies: Callable[[], None], *, rewrite: bool = True) -> None:
    """Install the import hook and the patches of libraries, and enter the proxies once torch is imported.

    Does not import torch.

    Args:
        scope: undoes everything on exit.
        enter_proxies: called once torch is imported; immediately if it already is.
        rewrite: also install the import hook.
    """
    from isthmus.shim import import_hook, libraries

    if rewrite:
        import_hook.install(scope)
    libraries.install(scope)
    scope.when_imported("torch", enter_proxies, "enters the proxies")
