"""Rewrites the syntax tree of user modules where proxies cannot reach. Keeps line numbers."""

import ast
import re
from collections.abc import Callable
from types import CodeType
from typing import Any

from isthmus.shim import patterns

# Source without these words needs no rewriting; this excludes most modules.
_WORDS = re.compile(
    rb"\.type\b|\.device_type\b|is_cuda|\b(?:str|exec|eval|compile)\s*\(|version\s*\.\s*cuda|out of memory"
)
# Rules for text and patterns matter only where devices are named.
_DEVICES = re.compile(rb"device|cuda")
_SHOWN = re.compile(
    rb"\b(?:repr|format|attrgetter)\s*\(|\b[rR]?[fF][rR]?[\"']|[\"']\s*%|^\s*case\b", re.MULTILINE
)

_used = False

# Further passes over rewritten trees: (tree, source, path) -> tree. With one, all modules of the user are rewritten.
PASSES: list[Callable[[ast.Module, bytes | str, str], ast.Module]] = []


def worth_parsing(source: bytes) -> bool:
    """Whether any rule of rules.SYNTAX can apply to the source, or a further pass."""
    return (
        bool(PASSES)
        or _WORDS.search(source) is not None
        or (_DEVICES.search(source) is not None and _SHOWN.search(source) is not None)
    )


def compile_source(source: bytes | str, path: str) -> CodeType:
    """Compile the rewritten source.

    Args:
        source: text, or bytes with their encoding declaration.
        path: file name for tracebacks.

    Raises:
        SyntaxError: the source is invalid.
    """
    return compile(parse_module(source, path), path, "exec", dont_inherit=True)


def parse_module(source: bytes | str, path: str) -> ast.Module:
    """Parse a module of the user, and apply all rules and further passes; arguments as of compile_source.

    Raises:
        SyntaxError: the source is invalid.
    """
    tree: ast.Module = parse(source, path, "exec")
    for each in PASSES:
        tree = ast.fix_missing_locations(each(tree, source, path))
    return tree


def parse(source: bytes | str, path: str, mode: str, flags: int = 0) -> Any:
    """Parse and rewrite source; arguments as those of ``compile``.

    Raises:
        SyntaxError: the source is invalid.
    """
    return rewrite(compile(source, path, mode, flags | ast.PyCF_ONLY_AST, dont_inherit=True))


def has_compiled() -> bool:
    """Whether source has been rewritten in this process, which calls the names in builtins."""
    return _used


def rewrite(tree: ast.AST) -> Any:
    """Apply every rule of rules.SYNTAX to a tree of any mode of ``compile``, in place; return the tree."""
    global _used
    _used = True
    return ast.fix_missing_locations(_Rewriter().visit(tree))


class _Rewriter(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        if node.attr == "type":
            return _call("__isthmus_type__", node, node.value)
        if node.attr == "device_type":
            return _call("__isthmus_device_type__", node, node.value)
        if node.attr == "is_cuda":
            return _call("__isthmus_is_cuda__", node, node.value)
        if node.attr == "cuda" and _ends_with(node.value, "version"):
            return _call("__isthmus_version_cuda__", node, node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        method = node.func if isinstance(node.func, ast.Attribute) else None
        if method is not None:  # x.type(...) calls a method; only attribute reads are rewritten
            method.value = self.visit(method.value)
        else:
            node.func = self.visit(node.func)
        node.args = [self.visit(argument) for argument in node.args]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        return _builtin_call(node) or node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) != 1 or not _is_out_of_memory_text(node.left):
            return node
        contains = _call("__isthmus_contains__", node, node.left, node.comparators[0])
        if isinstance(node.ops[0], ast.NotIn):
            return ast.copy_location(ast.UnaryOp(ast.Not(), contains), node)
        return contains if isinstance(node.ops[0], ast.In) else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        text = isinstance(node.left, ast.JoinedStr) or _is_text(node.left)
        if text and isinstance(node.op, ast.Mod):
            return _call("__isthmus_percent__", node, node.left, node.right)
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        self.generic_visit(node)
        node.value = _call("__isthmus_shown__", node.value, node.value)
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.match_case:
        if node.guard is not None:  # a pattern may contain attributes, but not calls
            node.guard = self.visit(node.guard)
        patterns.rewrite(node)
        node.body = [self.visit(statement) for statement in node.body]
        return node


def _builtin_call(node: ast.Call) -> ast.Call | None:
    """The call of a builtin function or a method in rewritten form; None for other calls."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "attrgetter" or (isinstance(node.func, ast.Name) and name in ("exec", "eval", "compile")):
        return _passed_on(f"__isthmus_{name}__", node)
    if isinstance(node.func, ast.Attribute):
        return _passed_on("__isthmus_format__", node) if name == "format" else None
    if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
        return None
    if name in ("str", "repr") and len(node.args) == 1:
        return _call("__isthmus_str__", node, node.func, *node.args)
    if name == "format" and len(node.args) in (1, 2):
        node.args[0] = _call("__isthmus_shown__", node, node.args[0])
    if name == "getattr" and len(node.args) in (2, 3) and _may_be_our_name(node.args[1]):
        return _call("__isthmus_getattr__", node, node.func, *node.args)
    return None


def _passed_on(function: str, node: ast.Call) -> ast.Call:
    """``function(f, ...)`` for ``f(...)``."""
    passed = _call(function, node, node.func, *node.args)
    passed.keywords = node.keywords
    return passed


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _may_be_our_name(node: ast.expr) -> bool:
    return not isinstance(node, ast.Constant) or node.value in ("is_cuda", "type")


def _is_out_of_memory_text(node: ast.expr) -> bool:
    words = node.value.lower() if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return words.startswith("cuda") and "out of memory" in words


def _ends_with(node: ast.expr, name: str) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == name) or (
        isinstance(node, ast.Name) and node.id == name
    )


def _call(function: str, place: ast.expr, *arguments: ast.expr) -> ast.Call:
    name = ast.copy_location(ast.Name(function, ast.Load()), place)
    return ast.copy_location(ast.Call(name, list(arguments), []), place)
