"""Import hook that instruments the user's modules; installed packages and the standard library are not."""

import ast
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from isthmus_common.package_folders import installed_folders, is_users
from isthmus_common.patches import Scope
from isthmus_migrate.trace.instrument import instrument


def compile_source(source: bytes | str, path: str) -> CodeType:
    """Compile instrumented source; bytes with their encoding declaration.

    Raises:
        SyntaxError: the source is invalid.
    """
    return compile(_parse_module(source, path), path, "exec", dont_inherit=True)


def _parse_module(source: bytes | str, path: str) -> ast.Module:
    tree: Any = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    return ast.fix_missing_locations(instrument(tree, source, path))


class Loader(SourceFileLoader):
    """Loader of instrumented source. Does not read or write Python's bytecode cache."""

    def path_stats(self, path: str) -> Any:
        """Raise OSError, so that importlib does not use the bytecode cache."""
        raise OSError(f"{path}: instrumented source is not cached")

    def source_to_code(  # type: ignore[override]
        self, data: bytes | str, path: str, *, _optimize: int = -1
    ) -> CodeType:
        """Compile the instrumented source."""
        return compile_source(data, path)


class Finder(importlib.abc.MetaPathFinder):
    """A path finder that uses :class:`Loader` for the user's modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The path finder's result, with :class:`Loader` for user modules."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not spec.origin:
            return spec
        if is_users(spec.origin):
            spec.loader = Loader(fullname, spec.origin)
        return spec


def install(scope: Scope) -> None:
    """Instrument the user's modules on import."""
    installed_folders()  # sysconfig imports a module itself (CPython 3.13), so not within an import
    finder = Finder()
    place = sys.meta_path.index(importlib.machinery.PathFinder)  # keeps the order of other finders
    sys.meta_path.insert(place, finder)
    scope.record(
        "sys.meta_path: user modules", "instruments the user's modules", lambda: sys.meta_path.remove(finder)
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
    """Let pytest rewrite the assertions of instrumented source; its bytecode cache is neither read nor written."""

    def make(original: Callable[..., None]) -> Callable[..., None]:
        def rewrite_asserts(
            mod: ast.Module, source: bytes, module_path: str | None = None, *args: Any
        ) -> None:
            if module_path and is_users(module_path):
                mod.body = _parse_module(source, module_path).body
            original(mod, source, module_path, *args)

        return rewrite_asserts

    reason = "compiles test modules itself"
    scope.replace("_pytest.assertion.rewrite.rewrite_asserts", make, reason, expects=("mod", "source"))
    scope.replace("_pytest.assertion.rewrite._read_pyc", lambda _: lambda *args: None, reason)
    scope.replace("_pytest.assertion.rewrite._write_pyc", lambda _: lambda *args: False, reason)


def _code_from_file(original: Callable[..., Any], *args: str) -> Any:
    """runpy's function: (run name, file) -> (code, file) before CPython 3.12, file -> code since."""
    path = args[-1]
    if not is_users(path):
        return original(*args)
    code = compile_source(Path(path).read_bytes(), path)
    return (code, path) if len(args) == 2 else code
