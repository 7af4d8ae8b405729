"""Detection of branches that run only on the CPU."""

import ast
import re

from isthmus.migrate.source.conditions import AVAILABLE
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.strings import text

_ACCELERATOR = re.compile(r"((is|on|use|has|with|have|using)_?)?(cuda|gpu)(_available|s)?", re.IGNORECASE)
_CPU = re.compile(r"(no|without|disable)_?(cuda|gpu)|((is|on|use|force)_?)?cpu(_only)?", re.IGNORECASE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def is_for_cpu(module: Module, node: ast.AST) -> bool:
    """Whether the enclosing tests in a node's function restrict it to the CPU."""
    inner = node
    for outer in module.enclosing(node):
        if isinstance(outer, _FUNCTIONS):
            return False
        if isinstance(outer, (ast.If, ast.IfExp)) and inner is not outer.test:
            body = outer.body if isinstance(outer.body, list) else [outer.body]
            if _is_cpu(module, outer.test, inner in body):
                return True
        inner = outer
    return False


def _is_cpu(module: Module, test: ast.expr, holds: bool) -> bool:
    """Whether a test, or its negation if ``holds`` is False, implies that only the CPU is used."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_cpu(module, test.operand, not holds)
    if isinstance(test, ast.BoolOp):
        decides = isinstance(test.op, ast.And) == holds
        return decides and any(_is_cpu(module, each, holds) for each in test.values)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        sides = {text(test.left).partition(":")[0], text(test.comparators[0]).partition(":")[0]}
        equal = isinstance(test.ops[0], ast.Eq) == holds
        return ("cpu" in sides and equal) or ("cuda" in sides and not equal)
    if isinstance(test, ast.Call):
        return not holds and module.names.qualified(test.func) in AVAILABLE
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return bool((_CPU if holds else _ACCELERATOR).fullmatch(name))
