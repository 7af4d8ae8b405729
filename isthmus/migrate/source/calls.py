"""Arguments of calls, and texts of strings."""

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


def text(node: ast.AST | None) -> str:
    """Return the text of a string; "" for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
