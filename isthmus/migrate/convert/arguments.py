"""Lookup and construction of call arguments."""

from collections.abc import Sequence

import libcst as cst

_NO_SPACE = cst.SimpleWhitespace("")


def find(call: cst.Call, parameters: Sequence[str], name: str) -> cst.Arg | None:
    """The argument of a parameter, None if the call does not give it, or gives it in ``*`` or ``**``.

    Args:
        call: of a function.
        parameters: of the function, in the order of their positions.
        name: of the parameter.
    """
    for position, argument in enumerate(call.args):
        if argument.star:
            return None
        if argument.keyword is not None:
            if argument.keyword.value == name:
                return argument
        elif position < len(parameters) and parameters[position] == name:
            return argument
    return None


def keyword(name: str, value: cst.BaseExpression) -> cst.Arg:
    """An argument by keyword, without spaces."""
    return cst.Arg(value, cst.Name(name), cst.AssignEqual(_NO_SPACE, _NO_SPACE))


def parenthesized(node: cst.BaseExpression) -> cst.BaseExpression:
    """A node that can stand on either side of ``and``."""
    is_or = isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or)
    if node.lpar or not (is_or or isinstance(node, cst.IfExp | cst.Lambda | cst.NamedExpr)):
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
