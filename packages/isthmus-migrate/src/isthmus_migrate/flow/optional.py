"""Uses that a function does not depend on: it also runs where their condition is false."""

import ast
import re

from isthmus_migrate.source.blocks import statements_before
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS

_FUNCTIONS = (*FUNCTIONS, ast.Lambda)
_RANK = re.compile(r"rank", re.IGNORECASE)  # one of the ranks does it
_PLAIN = (ast.Constant, ast.Name, ast.Attribute)


def is_optional(module: Module, node: ast.AST) -> bool:
    """Whether a node runs on a condition of its function, which does nothing or returns a plain value otherwise."""
    below = node
    for above in module.enclosing(node):
        if isinstance(above, ast.If) and below in above.body and not above.orelse:
            return not (_assigns_tested(above) or _RANK.search(ast.unparse(above.test)))
        if isinstance(above, ast.IfExp) and _is_choice(above, below):
            return True
        if any(map(_returns, statements_before(module, below))):
            return True
        if isinstance(above, _FUNCTIONS):
            return False
        below = above
    return False


def _assigns_tested(statement: ast.If) -> bool:
    """Whether a statement makes what it misses: ``if plugin is None: plugin = load()``."""
    inside = (
        each
        for part in statement.body
        for each in ast.walk(part)
        if isinstance(each, ast.Name | ast.Attribute)
    )
    made = {ast.unparse(each) for each in inside if isinstance(each.ctx, ast.Store)}
    return any(ast.unparse(each) in made for each in ast.walk(statement.test) if isinstance(each, ast.expr))


def _is_choice(choice: ast.IfExp, part: ast.AST) -> bool:
    """Whether a part of a ternary is chosen, against a plain value."""
    other = choice.orelse if part is choice.body else choice.body
    return part is not choice.test and isinstance(other, _PLAIN)


def _returns(statement: ast.stmt) -> bool:
    """Whether a statement is an ``if`` that returns a plain value."""
    last = statement.body[-1] if isinstance(statement, ast.If) else None
    return isinstance(last, ast.Return) and (last.value is None or isinstance(last.value, _PLAIN))
