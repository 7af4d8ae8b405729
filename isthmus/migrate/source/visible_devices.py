"""Settings of ``CUDA_VISIBLE_DEVICES`` in a source."""

import ast
from collections.abc import Iterator
from typing import TypeGuard

VARIABLE = "CUDA_VISIBLE_DEVICES"
_SETTERS = {"setdefault", "update", "putenv"}


def settings(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield assignments to ``os.environ["CUDA_VISIBLE_DEVICES"]`` and calls that set it."""
    for node in ast.walk(tree):
        if is_setting(node):
            yield node


def is_setting(node: ast.AST) -> TypeGuard[ast.expr]:
    """Whether a node is such an assignment's target, or such a call."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _is_environment(node.value) and _is_variable(node.slice)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    sets = node.func.attr in _SETTERS and (_is_environment(node.func.value) or node.func.attr == "putenv")
    return sets and any(map(_names_variable, (*node.args, *node.keywords)))


def _is_environment(node: ast.expr) -> bool:
    """Whether a node is ``os.environ``, or ``environ`` imported from os."""
    return ast.unparse(node) in {"os.environ", "environ"}


def _is_variable(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == VARIABLE


def _names_variable(node: ast.AST) -> bool:
    """Whether an argument names the variable: as a string, a keyword, or a dictionary key."""
    keys = node.keys if isinstance(node, ast.Dict) else []
    keyword = isinstance(node, ast.keyword) and node.arg == VARIABLE
    return keyword or any(_is_variable(each) for each in (node, *keys) if each is not None)
