"""Settings of ``CUDA_VISIBLE_DEVICES`` in a source."""

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from isthmus_migrate.source.constants import imports
from isthmus_migrate.source.names import FUNCTIONS

VARIABLE = "CUDA_VISIBLE_DEVICES"
_SETTERS = {"setdefault", "update", "putenv"}
_USES = re.compile("cuda|nccl")
_DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


def settings(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield assignments to ``os.environ["CUDA_VISIBLE_DEVICES"]`` and calls that set it."""
    for node in ast.walk(tree):
        if is_setting(node):
            yield node


def loaded_before(tree: ast.Module, name: str) -> set[str]:
    """Return the modules that may be loaded before a module sets the variable, by dotted name.

    Args:
        tree: of the module.
        name: its dotted name, which is in the result if a function sets the variable, or if the module uses CUDA
            before.
    """
    found: set[str] = set()
    before: set[str] = set()
    for statement in tree.body:
        if any(True for _ in settings(statement)):
            found |= {name} if isinstance(statement, _DEFINITIONS) else before
        before |= _loads(statement, name)
    return found


def _loads(statement: ast.stmt, name: str) -> set[str]:
    """Return the modules that a statement imports, and its own for relative imports and for uses of CUDA."""
    found: set[str] = set()
    for each in imports([statement]):
        if isinstance(each, ast.ImportFrom):
            found.add(name if each.level else each.module or "")
        else:
            found.update(alias.name for alias in each.names)
    return found | {name} if _USES.search(ast.unparse(statement)) else found


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
