"""Rewrites the user's own modules as they are imported, never an installed package or the standard library."""

from __future__ import annotations

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

from isthmus._support.patches import Scope
from isthmus.shim import answers
from isthmus.shim.rewrite import compile_source, worth_parsing


@functools.cache
def _installed() -> tuple[Path, ...]:
    """Folders of what is installed: the standard library, site-packages, this package."""
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    folders = [sysconfig.get_path(name) for name in names]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    paths = [Path(folder) for folder in folders]
    return (*paths, *(path.resolve() for path in paths), Path(__file__).resolve().parents[1])


def is_users(path: str) -> bool:
    """Whether a source file is the user's own."""
    if f"{os.sep}site-packages{os.sep}" in path:  # most modules; the rest costs a look at the disk
        return False
    places = (Path(path).absolute(), Path(path).resolve())
    if any({"site-packages", "dist-packages"} & set(place.parts) for place in places):
        return False
    return not any(place.is_relative_to(folder) for place in places for folder in _installed())


class Loader(SourceFileLoader):
    """Loads a module from its rewritten source. Never touches the byte code that plain Python caches."""

    def path_stats(self, path: str) -> Any:
        """Refuse: importlib then neither reads nor writes cached byte code."""
        raise OSError(f"{path}: rewritten source is not cached")

    def source_to_code(  # type: ignore[override]
        self, data: bytes | str, path: str, *, _optimize: int = -1
    ) -> CodeType:
        """Code of the rewritten source."""
        return compile_source(data, path)


class Finder(importlib.abc.MetaPathFinder):
    """Finds modules where the path finder does, and hands the user's own to :class:`Loader`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the path finder finds; the user's own with another loader, if there is something to rewrite."""
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
    """Rewrite the user's modules from now on."""
    answers.offer()
    scope.record(f"builtins: {', '.join(answers.NAMES)}", "called by rewritten source", answers.withdraw)
    finder = Finder()
    place = sys.meta_path.index(importlib.machinery.PathFinder)  # other finders keep their turn
    sys.meta_path.insert(place, finder)
    scope.record(
        "sys.meta_path: user modules",
        "the user's modules are rewritten",
        lambda: sys.meta_path.remove(finder),
    )
    scope.replace(
        "runpy._get_code_from_file",
        lambda original: functools.partial(_code_from_file, original),
        "a spawned process runs the user's script as __mp_main__ through it",
    )


def _code_from_file(original: Callable[..., Any], *args: str) -> Any:
    """runpy's function: (run name, file) -> (code, file) before CPython 3.12, file -> code from then on."""
    path = args[-1]
    if not is_users(path) or not worth_parsing(_read(path)):
        return original(*args)
    code = compile_source(_read(path), path)
    return (code, path) if len(args) == 2 else code
