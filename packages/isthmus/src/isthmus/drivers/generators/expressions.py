"""Printing of expressions (:mod:`isthmus.opset.pointwise`) in the language of a code generator."""

# ruff: noqa: D102 (the methods of a NodeVisitor)

import ast
from collections.abc import Callable, Mapping

from isthmus.opset.pointwise import FUNCTIONS

_OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


class Printer(ast.NodeVisitor):
    """Prints an expression with the operators that C and Python share.

    Args:
        names: text of each operand.
        number: text of a constant.
        call: text of a call, from the function's name (``FUNCTIONS``) and the texts of its arguments.
    """

    def __init__(
        self, names: Mapping[str, str], number: Callable[[float], str], call: Callable[[str, list[str]], str]
    ) -> None:
        self._names, self._number, self._call = names, number, call

    def text(self, expression: str) -> str:
        """The text of an expression."""
        found: str = self.visit(ast.parse(expression, mode="eval").body)
        return found

    def visit_Name(self, node: ast.Name) -> str:
        return self._names[node.id]

    def visit_Constant(self, node: ast.Constant) -> str:
        assert isinstance(node.value, int | float)
        return self._number(node.value)

    def visit_BinOp(self, node: ast.BinOp) -> str:
        return self.binary(_OPERATORS[type(node.op)], self.visit(node.left), self.visit(node.right))

    def visit_Compare(self, node: ast.Compare) -> str:
        return f"({self.visit(node.left)} {_OPERATORS[type(node.ops[0])]} {self.visit(node.comparators[0])})"

    def visit_UnaryOp(self, node: ast.UnaryOp) -> str:
        assert isinstance(node.op, ast.USub)
        return self.negative(self.visit(node.operand))

    def visit_Call(self, node: ast.Call) -> str:
        assert isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        return self._call(node.func.id, [self.visit(argument) for argument in node.args])

    def binary(self, sign: str, left: str, right: str) -> str:
        """Text of ``left sign right``."""
        return f"({left} {sign} {right})"

    def negative(self, operand: str) -> str:
        """Text of ``-operand``."""
        return f"(-{operand})"
