"""Detection of branches that run only on the CPU."""

import ast
import re

from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.conditions import AVAILABLE, conditions
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_ACCELERATOR = re.compile(r"((is|on|use|has|with|have|using)_?)?(cuda|gpu)(_available|s)?", re.IGNORECASE)
_CPU = re.compile(r"(no|without|disable)_?(cuda|gpu)|((is|on|use|force)_?)?cpu(_only)?", re.IGNORECASE)


def is_for_cpu(module: Module, node: ast.AST) -> bool:
    """Whether the conditions of a node restrict it to the CPU."""
    return any(_is_cpu(module, *each) for each in conditions(module, node))


def _is_cpu(module: Module, test: ast.expr, holds: bool) -> bool:
    """Whether a test, or its negation if ``holds`` is False, implies that only the CPU is used."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        sides = {text(test.left).partition(":")[0], text(test.comparators[0]).partition(":")[0]}
        equal = isinstance(test.ops[0], ast.Eq) == holds
        return ("cpu" in sides and equal) or ("cuda" in sides and not equal)
    if isinstance(test, ast.Call):
        return not holds and module.names.qualified(test.func) in AVAILABLE
    return bool((_CPU if holds else _ACCELERATOR).fullmatch(last_name(test)))
