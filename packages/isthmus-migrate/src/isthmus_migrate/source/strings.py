"""Strings that name a CUDA device."""

import ast
import re

_NUMBERED = re.compile(r"cuda:\d+")
_PERCENT = re.compile(r"cuda:%[dis]")
_BRACES = re.compile(r"cuda:\{0?(:d)?\}")


def text(node: ast.AST | None) -> str:
    """Return the text of a plain string; "" for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_cuda(node: ast.AST) -> bool:
    """Whether a node is the string ``"cuda"``."""
    return text(node) == "cuda"


def names_cuda(node: ast.AST) -> bool:
    """Whether a node is the string ``"cuda"``, or one such as ``"cuda:0"``."""
    return is_cuda(node) or _NUMBERED.fullmatch(text(node)) is not None


def is_formatted(node: ast.AST) -> bool:
    """Whether a node appends a number to ``"cuda:"``: an f-string, ``+``, ``%`` or ``format``."""
    if isinstance(node, ast.JoinedStr):
        parts = node.values
        return len(parts) == 2 and text(parts[0]) == "cuda:" and isinstance(parts[1], ast.FormattedValue)
    if isinstance(node, ast.BinOp):
        adds = isinstance(node.op, ast.Add) and text(node.left) == "cuda:"
        return adds or (isinstance(node.op, ast.Mod) and _PERCENT.fullmatch(text(node.left)) is not None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        plain = len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred)
        return plain and _BRACES.fullmatch(text(node.func.value)) is not None
    return False
