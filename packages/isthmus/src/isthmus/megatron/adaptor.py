"""Applies the patches of :mod:`isthmus.megatron.table`, each once its module is imported."""

import contextlib
import functools
import sys
from pathlib import Path

from isthmus import shim
from isthmus.megatron import table
from isthmus.megatron.signature import drift
from isthmus.megatron.table import Replacement
from isthmus_common import patches
from isthmus_common.patches import PatchError, Scope

FEATURE = "megatron"
_STAND_INS = {
    "apex": "FusedAdam, norms and multi-tensor functions",
    "transformer_engine": "linear layers, norms and attention",
}

_scope = Scope(FEATURE)
_shim: Scope | None = None
# Reasons why patches were not applied, by target.
_left: dict[str, str] = {}


def adopt() -> None:
    """Prepare this process for Megatron: shim, stand-ins and patches. A second call does nothing.

    Raises:
        ImportError: megatron.core is already imported.
        isthmus.shim.accelerator.NoAccelerator: no accelerator is available.
    """
    global _shim
    if _scope.patches:
        return
    if "megatron.core" in sys.modules:
        raise ImportError(
            "isthmus.megatron must be imported before megatron.core; make it the first import of the script"
        )
    _shim = shim.enter()
    _provide()
    for each in table.REPLACEMENTS:
        _scope.when_imported(each.module, functools.partial(_apply, each), each.reason)


def undo() -> None:
    """Undo every patch, and exit the shim if :func:`adopt` entered it. Megatron's modules remain imported."""
    _scope.undo()
    _left.clear()
    if _shim is not None:
        _shim.undo()


def unapplied_patches() -> dict[str, str]:
    """Patches that were not applied to the imported Megatron: reasons by target."""
    return dict(_left)


def report_missing(module: str, why: str) -> None:
    """Record that a module is missing or cannot be imported, so its patches are not applied."""
    for each in table.REPLACEMENTS:
        if each.module == module:
            _left[each.target] = why


def _apply(each: Replacement) -> None:
    """Apply one patch, or report that it does not match the imported Megatron."""
    try:
        owner, name = patches.resolve(each.target)
        if each.only_if_missing and getattr(owner, name, None) is not None:
            return
        problem = drift(each)
    except PatchError as error:
        problem = str(error)
    if problem:
        _left[each.target] = problem
        print(
            f"isthmus: {each.target} is not patched: {problem}; without the patch: {each.reason}",
            file=sys.stderr,
        )
        return
    if name == "__new__" and name not in vars(owner):
        # Deleting __new__ later would make object.__new__ reject the arguments of __init__ (CPython issue 5322).
        owner.__new__ = lambda cls, *_, **__: object.__new__(cls)
    _scope.replace(each.target, each.make, each.reason)


def _provide() -> None:
    """Add stand-ins for apex and Transformer Engine to sys.path, if they are not installed."""
    from isthmus.stand_ins import provide

    for name, replaced in _STAND_INS.items():
        with contextlib.suppress(ValueError):  # the real package is installed
            for folder in provide.folders(name):
                _search(folder, f"{name} is not installed: isthmus.ops provides its {replaced}")


def _search(folder: str, reason: str) -> None:
    if folder in sys.path:
        return
    sys.path.append(folder)
    _scope.record(f"sys.path: {Path(folder).name}", reason, functools.partial(sys.path.remove, folder))
