"""Lookup and construction of call arguments."""

from collections.abc import Sequence

import libcst as cst

_NO_SPACE = cst.SimpleWhitespace("")


def find(call: cst.Call, parameters: Sequence[str], name: str) -> cst.Arg | None:
    """Find the argument of a parameter; None if it is not passed, or passed in ``*`` or ``**``.

    Args:
        call: call of a function.
        parameters: parameters of the function, in order.
        name: name of the parameter.
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
    """Make a keyword argument without spaces."""
    return cst.Arg(value, cst.Name(name), cst.AssignEqual(_NO_SPACE, _NO_SPACE))


def parenthesized(node: cst.BaseExpression) -> cst.BaseExpression:
    """Parenthesize a node for use as an operand of ``and`` if needed."""
    is_or = isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or)
    if node.lpar or not (is_or or isinstance(node, cst.IfExp | cst.Lambda | cst.NamedExpr)):
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
