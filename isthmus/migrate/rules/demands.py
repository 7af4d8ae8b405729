"""Statements that fail without an accelerator, before and after a conversion: what follows needs no test."""

import ast
from collections.abc import Iterator

from isthmus.migrate.rules.indices import is_integer
from isthmus.migrate.source.module import Module

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = ("body", "orelse", "finalbody")


def follows_demand(module: Module, node: ast.AST) -> bool:
    """Whether a node runs only after ``x.to(rank)`` in its function, or in the ``__init__`` of its class."""
    if not module.mentions(".to("):
        return False
    below = node
    for above in module.enclosing(node):
        blocks = (getattr(above, name, None) for name in _BLOCKS)
        block = next((each for each in blocks if isinstance(each, list) and below in each), [])
        earlier = block[: block.index(below)] if block else []
        if any(_demands(module, each) for each in earlier):
            return True
        if isinstance(above, _FUNCTIONS):
            return _is_initialized(module, above)
        below = above
    return False


def _is_initialized(module: Module, method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a method of objects whose ``__init__`` fails without an accelerator."""
    owner = module.parents[method]
    if not isinstance(owner, ast.ClassDef) or method.name in ("__init__", "__new__") or method.decorator_list:
        return False
    made = (each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    return any(_demands(module, each) for function in made for each in function.body)


def _demands(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement always moves something to the device of an index, which is that of an accelerator."""
    if isinstance(statement, ast.With):
        return any(_demands(module, each) for each in statement.body)
    if (
        not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return)
        or statement.value is None
    ):
        return False
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "to"
        and bool(call.args)
        and is_integer(module, call.args[0])
        for call in _always(statement.value)
    )


def _always(node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of a chain, ``model.eval().to(rank)``, and those that are its arguments."""
    if isinstance(node, ast.Call):
        yield node
        for argument in node.args:
            yield from _always(argument)
        if isinstance(node.func, ast.Attribute):
            yield from _always(node.func.value)
