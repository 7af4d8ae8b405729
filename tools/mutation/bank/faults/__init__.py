"""Faults by name: a wrong kernel, or a function that makes one."""

from __future__ import annotations

import ast
import pkgutil
from importlib import import_module
from typing import Any

from tools.mutation.mutant import Wrong

FAULTS: dict[str, Any] = {
    name: value
    for module in pkgutil.iter_modules(__path__)
    for name, value in vars(import_module(f"{__name__}.{module.name}")).items()
    if callable(value)
}


def make(text: str) -> Wrong:
    """Make the wrong kernel that a row names: ``last_of_equal``, or ``rows_lost(65535)`` with literal arguments."""
    node = ast.parse(text, mode="eval").body
    if isinstance(node, ast.Name):
        wrong: Wrong = FAULTS[node.id]
        return wrong
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"{text}: not a fault")
    arguments = [ast.literal_eval(each) for each in node.args]
    named = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
    made: Wrong = FAULTS[node.func.id](*arguments, **named)
    return made
