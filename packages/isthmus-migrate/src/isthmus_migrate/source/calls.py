"""Names and arguments of calls."""

import ast
from collections.abc import Sequence


def argument(call: ast.Call, parameters: Sequence[str], name: str) -> ast.expr | None:
    """Return the argument of a parameter; None if it is not passed, or in ``*arguments`` or ``**options``.

    Args:
        call: call of a function.
        parameters: parameters of the function, in order.
        name: name of the parameter.
    """
    for each in call.keywords:
        if each.arg == name:
            return each.value
    for parameter, value in zip(parameters, call.args, strict=False):
        if isinstance(value, ast.Starred):
            return None
        if parameter == name:
            return value
    return None


def unpacks(call: ast.Call) -> str:
    """Return ``"*"`` for a call with ``*arguments``, ``"**"`` for one with ``**options``, else ""."""
    if any(isinstance(each, ast.Starred) for each in call.args):
        return "*"
    return "**" if any(each.arg is None for each in call.keywords) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a call's keyword argument."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def last_name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
