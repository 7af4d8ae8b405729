"""The registry of monkey patches: what is replaced in PyTorch, why, and how it is undone.

Every feature that has to replace something at run time (the CUDA shim, the graph path, the Megatron adaptor) does
it through a :class:`Scope`, so that ``isthmus run --explain`` can print all of it and leaving the scope restores
exactly what was there.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

from isthmus._support import ctype
from isthmus._support.after_import import AfterImport

_MISSING: Any = object()


class PatchError(RuntimeError):
    """A target is not what the patch was written for."""


class Patch(NamedTuple):
    """One applied patch.

    Attributes:
        target: dotted name of what is replaced, as a user would write it.
        reason: one line, why.
        feature: who asked for it: ``migrate``, ``graph``, ...
        undo: restores what was there before; called once.
    """

    target: str
    reason: str
    feature: str
    undo: Callable[[], None]


_active: list[Patch] = []


def active(feature: str = "") -> list[Patch]:
    """Patches in force in this process, oldest first; of one feature if it is named."""
    return [patch for patch in _active if not feature or patch.feature == feature]


def resolve(target: str) -> tuple[Any, str]:
    """Owner and attribute name of a dotted target, importing the modules in it.

    Raises:
        PatchError: when the owner does not exist. The attribute itself need not.
    """
    parts = target.split(".")
    owner: Any = importlib.import_module(parts[0])
    for depth, name in enumerate(parts[1:-1], start=2):
        path = ".".join(parts[:depth])
        found = getattr(owner, name, None)
        if found is None and isinstance(owner, ModuleType):
            found = _import(path)
        if found is None:
            raise PatchError(f"cannot patch {target}: {path} does not exist in this version")
        owner = found
    return owner, parts[-1]


def _import(path: str) -> ModuleType | None:
    """The module, also while it is being imported and not yet an attribute of its package."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return None


def check_signature(target: str, function: Any, expected: tuple[str, ...]) -> None:
    """Compare the leading parameter names of function with what the patch was written for.

    Raises:
        PatchError: when they differ, naming both, or when there is no function.
    """
    library = target.partition(".")[0]
    if not callable(function):
        raise PatchError(f"cannot patch {target}: there is no such function in this version of {library}")
    found = tuple(inspect.signature(function).parameters)
    if found[: len(expected)] != expected:
        raise PatchError(
            f"cannot patch {target}: it takes ({', '.join(found)}), the patch was written for "
            f"({', '.join(expected)}); this version of {library} is not supported"
        )


class Scope:
    """Patches that are applied and undone together. Use as a context manager, or call :meth:`undo`.

    Args:
        feature: name under which the patches are listed.

    Attributes:
        patches: those applied and not undone, oldest first.
        replaced: (stand-in, original) of every attribute that :meth:`set` has replaced.
    """

    def __init__(self, feature: str) -> None:
        self.feature = feature
        self.patches: list[Patch] = []
        self.replaced: list[tuple[Any, Any]] = []

    def __enter__(self) -> Scope:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def undo(self) -> None:
        """Undo every patch of this scope, newest first. A second call does nothing."""
        while self.patches:
            patch = self.patches.pop()
            patch.undo()
            _active.remove(patch)

    def record(self, target: str, reason: str, undo: Callable[[], None]) -> None:
        """Enter a change that the caller has made himself, with the function that takes it back."""
        patch = Patch(target, reason, self.feature, undo)
        self.patches.append(patch)
        _active.append(patch)

    def replace(
        self,
        target: str,
        make: Callable[[Any], Any],
        reason: str,
        expects: tuple[str, ...] = (),
    ) -> None:
        """Replace an attribute of a module or a class by ``make(what was there)``.

        Args:
            target: dotted name. An attribute that is absent is created (make gets None) and deleted again.
            make: builds the replacement from the original.
            reason: one line.
            expects: leading parameter names of the original, checked when given.

        Raises:
            PatchError: the owner is absent, or the original has another signature.
        """
        owner, name = resolve(target)
        original = getattr(owner, name, None)
        if expects:
            check_signature(target, original, expects)
        self.set(owner, name, make(original), target, reason)

    def set(self, owner: Any, name: str, value: Any, target: str, reason: str) -> None:
        """Set ``owner.name`` to value; undone by restoring the entry of the owner's own namespace."""
        saved = vars(owner).get(name, _MISSING)
        self.replaced.append((value, getattr(owner, name, None)))
        setattr(owner, name, value)

        def undo() -> None:
            if saved is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, saved)

        self.record(target, reason, undo)

    def when_imported(self, module: str, then: Callable[[], None], reason: str) -> None:
        """Call then() once the module is imported; at once if it is."""
        if module in sys.modules:
            then()
            return
        finder = AfterImport(module, then)
        sys.meta_path.insert(0, finder)
        self.record(
            f"sys.meta_path: {module}",
            reason,
            lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None,
        )

    def construct(
        self, target: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], reason: str
    ) -> None:
        """Replace the constructor of a type written in C; the type itself stays the object that it is.

        Args:
            target: dotted name of the type.
            make: builds ``new(cls, *args, **kwargs)`` from the original of the same form.
            reason: one line.
        """
        owner, name = resolve(target)
        self.record(target, reason, ctype.replace_new(getattr(owner, name), make))
