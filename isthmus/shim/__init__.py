"""Run code written for CUDA on another accelerator.

``with isthmus.shim.enter():`` does it inside a program; ``isthmus run`` does the same to a script and its children.
Both go through :func:`install`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus._support.patches import Scope

FEATURE = "shim"

__all__ = ["FEATURE", "enter", "install"]


def enter(rewrite: bool = True) -> Scope:
    """Let code written for CUDA run on the current accelerator until the returned scope is left.

    ``torch.cuda`` answers for the accelerator, functions that take a device accept ``"cuda"``, and modules of the
    user's own that are imported inside the scope are rewritten where no proxy reaches (rules.SYNTAX). Leaving the
    scope restores everything. Changes nothing where the accelerator is CUDA itself, or inside another such scope.

    Args:
        rewrite: also install the import hook.

    Raises:
        isthmus.shim.accelerator.NoAccelerator: no accelerator is available.
        isthmus._support.patches.PatchError: this PyTorch differs from the one that the patches were written for.
    """
    from isthmus._support.patches import Scope, active
    from isthmus.shim import accelerator, copies, proxies

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
    """Install the import hook and the patches of libraries, and enter the proxies as soon as torch is imported.

    Imports no torch.

    Args:
        scope: undoes everything when it is left.
        enter_proxies: called once torch is imported; at once if it already is.
        rewrite: also install the import hook.
    """
    from isthmus.shim import import_hook, libraries

    if rewrite:
        import_hook.install(scope)
    libraries.install(scope)
    scope.when_imported("torch", enter_proxies, "the proxies are entered then")
