"""Source given as text to ``exec``, ``eval`` and ``compile`` in rewritten modules, which is rewritten too."""

import __future__

import ast
import builtins
import copy
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from isthmus.shim import rewrite

_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag


def run(function: Any, *args: Any, **kwargs: Any) -> Any:
    """``exec(...)`` or ``eval(...)``, in the namespaces of the caller if none is given."""
    if function not in (builtins.exec, builtins.eval) or not args:
        return function(*args, **kwargs)
    caller = sys._getframe(1)
    source, *namespaces = args
    if not namespaces or namespaces[0] is None:
        namespaces = [caller.f_globals, *(namespaces[1:] or [caller.f_locals])]
    if isinstance(source, (str, bytes)) and _has_builtins(namespaces[0]):
        if function is builtins.eval:  # eval ignores them
            source = source.lstrip(" \t") if isinstance(source, str) else source.lstrip(b" \t")
        source = _compiled(source, "<string>", function.__name__, inherited_flags(caller))
    return function(source, *namespaces, **kwargs)


def compile_text(function: Any, *args: Any, **kwargs: Any) -> Any:
    """``compile(...)``."""
    caller = sys._getframe(1)
    if function is not builtins.compile:
        return function(*args, **kwargs)
    names = ("source", "filename", "mode", "flags", "dont_inherit")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    flags = given.get("flags", 0) | (0 if given.get("dont_inherit") else inherited_flags(caller))
    source = given["source"]
    if not isinstance(source, (str, bytes, ast.AST)) or flags & ast.PyCF_ONLY_AST:
        return function(*args, **kwargs)
    optimize = args[5] if len(args) > 5 else kwargs.get("optimize", -1)
    return _compiled(source, given["filename"], given["mode"], flags, optimize)


def inherited_flags(caller: FrameType) -> int:
    """The ``from __future__ import`` flags of the caller, which source given as text inherits."""
    return caller.f_code.co_flags & _FUTURES


def _has_builtins(namespace: Any) -> bool:
    """Whether source run in these globals can call what rewriting inserts; a sandbox has builtins of its own."""
    found = namespace.get("__builtins__", builtins) if isinstance(namespace, dict) else builtins
    return "__isthmus_type__" in (found if isinstance(found, dict) else vars(found))


def _compiled(source: Any, path: Any, mode: str, flags: int, optimize: int = -1) -> CodeType:
    """Compile source text or a copy of a syntax tree, rewritten if a rule may apply."""
    if isinstance(source, ast.AST):
        tree = rewrite.rewrite(copy.deepcopy(source))
    elif not rewrite.worth_parsing(source.encode() if isinstance(source, str) else source):
        tree = source
    else:
        tree = rewrite.parse(source, path, mode, flags)
    return compile(tree, path, mode, flags, dont_inherit=True, optimize=optimize)


NAMES: dict[str, Callable[..., Any]] = {
    "__isthmus_exec__": run,
    "__isthmus_eval__": run,
    "__isthmus_compile__": compile_text,
}
