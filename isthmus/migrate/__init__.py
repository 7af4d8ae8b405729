"""Running CUDA code on another accelerator: the shim (at run time).

``with isthmus.migrate.shim():`` is the whole of it; ``isthmus run`` does the same to a script and its children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus.patches import Scope

FEATURE = "migrate"

__all__ = ["FEATURE", "shim"]


def shim(rewrite: bool = True) -> Scope:
    """Let code written for CUDA run on the current accelerator, until the returned scope is left.

    ``torch.cuda`` answers for the accelerator, functions that take a device accept ``"cuda"``, and modules of the
    user's own that are imported inside the scope are rewritten where no proxy reaches (rules.SYNTAX). Leaving the
    scope restores everything. Where the accelerator is CUDA itself, or inside another such scope, nothing is changed.

    Args:
        rewrite: also install the import hook.

    Raises:
        isthmus.migrate.accelerator.NoAccelerator: there is none.
        isthmus.patches.PatchError: this PyTorch is not one that the patches were written for.
    """
    from isthmus.migrate import accelerator, copies, import_hook, libraries
    from isthmus.migrate.proxies import enter
    from isthmus.patches import Scope, active

    scope = Scope(FEATURE)
    if active(FEATURE):
        return scope
    try:
        current = accelerator.current()
        if not current.is_cuda:
            copies.install(scope)
            if rewrite:
                import_hook.install(scope)
            libraries.install(scope)
            enter(scope, current)
    except BaseException:
        scope.undo()
        raise
    return scope
