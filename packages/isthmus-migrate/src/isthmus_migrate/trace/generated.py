"""Source that a script generates for exec(), eval() or compile(): its strings have the origins of its text."""

import __future__

import ast
import builtins
import contextlib
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from isthmus_migrate.trace.places import Place, add_count
from isthmus_migrate.trace.text import DEVICE_TEXT, Traced, to_exact_str, traced

_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag

_PARAMETERS = ("source", "filename", "mode", "flags", "dont_inherit", "optimize")

_derived: list[str] = []
_code: dict[tuple[str, str], CodeType] = {}


class _Strings(ast.NodeTransformer):
    """Gives the strings of generated source the origins of its text."""

    def __init__(self, origins: frozenset[Place]) -> None:
        self._origins = origins

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, str) or not DEVICE_TEXT.search(node.value):
            return node
        _derived.append(traced(node.value, self._origins))
        function = ast.Name("__isthmus_trace_derived__", ast.Load())
        return ast.copy_location(ast.Call(function, [ast.Constant(len(_derived) - 1)], []), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        node.body = [self.visit(each) for each in node.body]
        return node


def derived(index: int) -> str:
    """Return a string of generated source."""
    return _derived[index]


def code(function: Any, source: Any) -> Any:
    """Return the first argument of exec() or eval(), compiled if it is traced text."""
    if type(source) is not Traced or function not in (builtins.exec, builtins.eval):
        return source
    key = to_exact_str(source), function.__name__
    if key not in _code:
        try:
            tree = _tree(source, "<string>", key[1])
        except (SyntaxError, ValueError):
            return to_exact_str(source)  # for the error of Python itself
        _code[key] = compile(tree, "<string>", key[1], _inherited_flags(sys._getframe(1)), dont_inherit=True)
    return _code[key]


def compile_text(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call compile(); the strings of traced text become traced."""
    if function is not builtins.compile:
        return function(*args, **kwargs)
    given = {"flags": 0, **dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
    if not given.get("dont_inherit"):
        given["flags"] |= _inherited_flags(sys._getframe(1))
        given["dont_inherit"] = True
    if type(given.get("source")) is Traced and not given["flags"] & ast.PyCF_ONLY_AST:
        with contextlib.suppress(SyntaxError, ValueError):  # Python's own, below
            tree = _tree(given["source"], given["filename"], given["mode"])
            return compile(**{**given, "source": tree, "filename": to_exact_str(given["filename"])})
    return compile(**{name: to_exact_str(value) for name, value in given.items()})


def _inherited_flags(caller: FrameType) -> int:
    """Return the ``from __future__ import`` flags of the caller, which source given as text inherits."""
    return caller.f_code.co_flags & _FUTURES


def _tree(source: Traced, filename: Any, mode: str) -> Any:
    for place in source.origins:
        add_count(place.uses, mode)
    text_of = to_exact_str(source).lstrip(" \t") if mode == "eval" else to_exact_str(source)
    tree = compile(text_of, to_exact_str(filename), to_exact_str(mode), ast.PyCF_ONLY_AST, dont_inherit=True)
    return ast.fix_missing_locations(_Strings(source.origins).visit(tree))
