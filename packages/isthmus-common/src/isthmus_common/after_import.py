"""Callbacks that run when a module is first imported."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class AfterImport(MetaPathFinder):
    """A finder that calls action once, after the named module has been executed, and then removes itself.

    Args:
        module: full name of the module.
        action: called without arguments.
    """

    def __init__(self, module: str, action: Callable[[], None]) -> None:
        self.module = module
        self.action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module with a wrapped loader; None for other modules.

        The finder stays, because a library may only test for the module (``importlib.util.find_spec``).
        """
        if fullname != self.module or self not in sys.meta_path:
            return None
        place = sys.meta_path.index(self)
        del sys.meta_path[place]  # let other finders find the module
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(place, self)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._on_executed)
        return spec

    def _on_executed(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self.action()


def when_imported(module: str, action: Callable[[], None]) -> None:
    """Call action now if the module is imported, else once after its execution; repeated requests count once."""
    waiting = [(each.module, each.action) for each in sys.meta_path if isinstance(each, AfterImport)]
    if module in sys.modules:
        action()
    elif (module, action) not in waiting:
        sys.meta_path.insert(0, AfterImport(module, action))


class _Loader(Loader):
    def __init__(self, loader: Loader, action: Callable[[], None]) -> None:
        self._loader = loader
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Restore the loader first: inspect and pickle read it.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._action()


class AfterExecution(MetaPathFinder):
    """A finder that calls action once, at the first import after a module has finished executing.

    Args:
        module: full name of a module in ``sys.modules``.
        action: called without arguments.
    """

    def __init__(self, module: str, action: Callable[[], None]) -> None:
        self.module = module
        self.action = action

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Return None, so that another finder finds the module."""
        if self in sys.meta_path and not is_being_executed(self.module):
            sys.meta_path.remove(self)
            self.action()


def is_being_executed(module: str) -> bool:
    """Return whether the module is partially imported."""
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))
