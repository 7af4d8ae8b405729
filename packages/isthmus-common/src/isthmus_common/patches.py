"""The registry of monkey patches: target, reason and undo of each.

Every feature that patches at run time (the CUDA shim, the graph path, the Megatron adaptor) uses a :class:`Scope`, so
that ``isthmus run --explain`` can print all patches and leaving the scope restores the originals.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from isthmus_common import ctype
from isthmus_common.after_import import AfterExecution, AfterImport, is_being_executed

_MISSING: Any = object()


class PatchError(RuntimeError):
    """The target of a patch is missing or has an unexpected signature."""


class Patch(NamedTuple):
    """One applied patch.

    Attributes:
        target: dotted name of the replaced attribute, as a user would write it.
        reason: one line.
        feature: the feature that applied it: ``graph``, ``chip``, ``verify``, ...
        undo: restores the original; called once.
    """

    target: str
    reason: str
    feature: str
    undo: Callable[[], None]


class Skipped(NamedTuple):
    """A feature whose patches do not match the installed version of a library.

    Attributes:
        loss: what does not work without them.
        reason: why, in one line.
    """

    loss: str
    reason: str


_active: list[tuple[Patch, Scope]] = []
_skipped: list[Skipped] = []
_attempted: list[str] = []  # losses of the attempts that run now, the innermost last


def active(feature: str = "") -> list[Patch]:
    """Return the active patches of this process, oldest first, optionally of one feature."""
    return [patch for patch, _ in _active if not feature or patch.feature == feature]


def skipped() -> list[Skipped]:
    """Return the features that :func:`attempt` left out in this process, oldest first."""
    return list(_skipped)


def attempt(install: Callable[[], None], loss: str) -> None:
    """Apply the patches of a feature without which everything else works.

    If a target or a module has moved, all of them are undone, and one line on standard error names the loss. The same
    holds for those that install defers with :meth:`Scope.when_imported`.

    Args:
        install: applies the patches.
        loss: what does not work without them, as the first words of a sentence.
    """
    before = len(_active)
    _attempted.append(loss)
    try:
        install()
    except (PatchError, ImportError) as error:
        for patch, scope in reversed(_active[before:]):
            patch.undo()
            scope.patches.remove(patch)
        del _active[before:]
        if not any(each.loss == loss for each in _skipped):
            print(f"isthmus: {loss} will not work: {error}", file=sys.stderr)
            _skipped.append(Skipped(loss, str(error)))
    finally:
        _attempted.pop()


def resolve(target: str) -> tuple[Any, str]:
    """Return owner and attribute name of a dotted target; imports the modules in it.

    Raises:
        PatchError: the owner does not exist. The attribute itself may be absent.
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
    """Import a module, also while it is partially imported and not yet an attribute of its package."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return None


def check_signature(target: str, function: Any, expected: tuple[str, ...]) -> None:
    """Compare the leading parameter names of a function with those that the patch expects.

    Raises:
        PatchError: they differ, or the function does not exist.
    """
    library = target.partition(".")[0]
    if not callable(function):
        raise PatchError(f"cannot patch {target}: no such function in this version of {library}")
    found = tuple(inspect.signature(function).parameters)
    if found[: len(expected)] != expected:
        raise PatchError(
            f"cannot patch {target}: its parameters are ({', '.join(found)}), expected "
            f"({', '.join(expected)}); this version of {library} is not supported"
        )


class Scope:
    """Patches that are undone together. Use as a context manager, or call :meth:`undo`.

    Args:
        feature: name of the feature, shown with the patches.

    Attributes:
        patches: active patches, oldest first.
        replaced: (replacement, original) of every attribute that :meth:`set` replaced.
    """

    def __init__(self, feature: str) -> None:
        self.feature = feature
        self.patches: list[Patch] = []
        self.replaced: list[tuple[Any, Any]] = []

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def undo(self) -> None:
        """Undo every patch of this scope, newest first. A second call does nothing."""
        while self.patches:
            patch = self.patches.pop()
            patch.undo()
            _active.remove((patch, self))

    def record(self, target: str, reason: str, undo: Callable[[], None]) -> None:
        """Register a change made by the caller, with the function that undoes it."""
        patch = Patch(target, reason, self.feature, undo)
        self.patches.append(patch)
        _active.append((patch, self))

    def replace(
        self, target: str, make: Callable[[Any], Any], reason: str, expects: tuple[str, ...] = ()
    ) -> None:
        """Replace an attribute of a module or a class by ``make(original)``.

        Args:
            target: dotted name. An absent attribute is created (make gets None), and deleted by undo.
            make: builds the replacement from the original.
            reason: one line.
            expects: leading parameter names of the original, checked when given.

        Raises:
            PatchError: the owner does not exist, the original has another signature, or make needs one and there is
                none.
        """
        owner, name = resolve(target)
        original = getattr(owner, name, None)
        if expects:
            check_signature(target, original, expects)
        try:
            made = make(original)
        except (AttributeError, TypeError) as error:
            if original is None:
                raise PatchError(f"cannot patch {target}: it does not exist in this version") from error
            raise
        self.set(owner, name, made, target, reason)

    def set(self, owner: Any, name: str, value: Any, target: str, reason: str) -> None:
        """Set ``owner.name`` to value; undo restores the entry of the owner's own namespace."""
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
        """Call then() once the module is imported: now if it is already, later if it is being executed."""
        if _attempted:
            then = functools.partial(attempt, then, _attempted[-1])
        finder: AfterImport | AfterExecution
        if module not in sys.modules:
            finder = AfterImport(module, then)
        elif is_being_executed(module):
            finder = AfterExecution(module, then)
        else:
            then()
            return
        sys.meta_path.insert(0, finder)
        self.record(
            f"sys.meta_path: {module}",
            reason,
            lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None,
        )

    def construct(
        self, target: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], reason: str
    ) -> None:
        """Replace the constructor of a type written in C; the type itself stays the same object.

        Args:
            target: dotted name of the type.
            make: builds ``new(cls, *args, **kwargs)`` from the original of the same form.
            reason: one line.
        """
        owner, name = resolve(target)
        self.record(target, reason, ctype.replace_new(getattr(owner, name), make))
