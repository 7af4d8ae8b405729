"""Import hook that rewrites the user's modules; installed packages and the standard library are not rewritten."""

import ast
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from isthmus.shim import names
from isthmus.shim.rewrite import compile_source, parse_module, worth_parsing
from isthmus_common import package_folders
from isthmus_common.patches import Scope


@functools.cache
def _installed_folders() -> tuple[Path, ...]:
    """Folders of installed code: the standard library, site-packages, the packages of Isthmus."""
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    folders = [sysconfig.get_path(name) for name in names]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    paths = [Path(folder) for folder in folders]
    paths += map(Path, package_folders.folders())
    return (*paths, *(path.resolve() for path in paths))


def is_users(path: str) -> bool:
    """Whether a source file belongs to the user."""
    if f"{os.sep}site-packages{os.sep}" in path:  # fast path without file system access
        return False
    places = (Path(path).absolute(), Path(path).resolve())
    if any({"site-packages", "dist-packages"} & set(place.parts) for place in places):
        return False
    return not any(place.is_relative_to(folder) for place in places for folder in _installed_folders())


class Loader(SourceFileLoader):
    """Loader of rewritten source. Does not read or write Python's bytecode cache."""

    def path_stats(self, path: str) -> Any:
        """Raise OSError, so that importlib does not use the bytecode cache."""
        raise OSError(f"{path}: rewritten source is not cached")

    def source_to_code(  # type: ignore[override]
        self, data: bytes | str, path: str, *, _optimize: int = -1
    ) -> CodeType:
        """Compile the rewritten source."""
        return compile_source(data, path)


class Finder(importlib.abc.MetaPathFinder):
    """A path finder that uses :class:`Loader` for the user's modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The path finder's result, with :class:`Loader` for user modules that need rewriting."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not spec.origin:
            return spec
        if is_users(spec.origin) and worth_parsing(_read(spec.origin)):
            spec.loader = Loader(fullname, spec.origin)
        return spec


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def install(scope: Scope) -> None:
    """Rewrite the user's modules on import."""
    _installed_folders()  # sysconfig imports a module itself (CPython 3.13), so not within an import
    names.offer()
    scope.record(f"builtins: {', '.join(names.NAMES)}", "called by rewritten source", names.withdraw)
    finder = Finder()
    place = sys.meta_path.index(importlib.machinery.PathFinder)  # keeps the order of other finders
    sys.meta_path.insert(place, finder)
    scope.record(
        "sys.meta_path: user modules", "rewrites the user's modules", lambda: sys.meta_path.remove(finder)
    )
    scope.replace(
        "runpy._get_code_from_file",
        lambda original: functools.partial(_code_from_file, original),
        "spawned processes load the user's script as __mp_main__ with it",
    )
    scope.when_imported(
        "_pytest.assertion.rewrite", functools.partial(_pytest, scope), "loads test modules itself"
    )


def _pytest(scope: Scope) -> None:
    """Let pytest rewrite the assertions of rewritten source; its bytecode cache is neither read nor written."""

    def make(original: Callable[..., None]) -> Callable[..., None]:
        def rewrite_asserts(
            mod: ast.Module, source: bytes, module_path: str | None = None, *args: Any
        ) -> None:
            if module_path and is_users(module_path) and worth_parsing(source):
                mod.body = parse_module(source, module_path).body
            original(mod, source, module_path, *args)

        return rewrite_asserts

    reason = "compiles test modules itself"
    scope.replace("_pytest.assertion.rewrite.rewrite_asserts", make, reason, expects=("mod", "source"))
    scope.replace("_pytest.assertion.rewrite._read_pyc", lambda _: lambda *args: None, reason)
    scope.replace("_pytest.assertion.rewrite._write_pyc", lambda _: lambda *args: False, reason)


def _code_from_file(original: Callable[..., Any], *args: str) -> Any:
    """runpy's function: (run name, file) -> (code, file) before CPython 3.12, file -> code since."""
    path = args[-1]
    if not is_users(path) or not worth_parsing(_read(path)):
        return original(*args)
    code = compile_source(_read(path), path)
    return (code, path) if len(args) == 2 else code
