"""Checks an exported program before PyTorch loads it, which evaluates parts of the file as Python.

Those are sizes and guards (expressions), operators (any callable in torch), and names (the code of the graph).
"""

import ast
import json
import math
import operator
import re
from typing import Any

import torch
from torch._export.serde.serialize import _SYM_OPS
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._sympy import functions

_EXPRESSIONS = frozenset({"expr_str", "guards_code"})
_OPERATORS = frozenset({"target", "as_operator"})
_TEXT = frozenset({"as_string", "as_strings", "metadata"})  # never evaluated
_NAME = re.compile(r"[\w .+/-]*")  # cannot form a call
_MODULES = {"torch": torch, "_operator": operator, "math": math}
_FUNCTIONS = frozenset(functions.__all__) | frozenset(
    "Symbol Integer Float Rational Add Mul Pow Max Min Abs floor ceiling sqrt log Piecewise ExprCondPair "
    "Eq Ne Lt Le Gt Ge And Or Not Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan".split()
)
_METHODS = frozenset({"size", "stride", "storage_offset"})
_NODES = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Subscript,
    ast.Name,
    ast.keyword,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


def strange(value: Any, key: str = "") -> str | None:
    """Return the first text in a program's JSON that is more than data; None if there is none.

    Args:
        value: of the JSON, at any depth.
        key: of the innermost object that holds it.
    """
    if isinstance(value, str):
        return None if _is_data(value, key) else value
    if isinstance(value, dict):
        parts = ((each, key if key in _TEXT and isinstance(each, str) else k) for k, each in value.items())
    else:
        parts = ((each, key) for each in (value if isinstance(value, list) else []))
    return next((found for each, k in parts if (found := strange(each, k)) is not None), None)


def _is_data(text: str, key: str) -> bool:
    if key in _EXPRESSIONS:
        return is_expression(text)
    if key in _OPERATORS:
        return _is_operator(text)
    if key in _TEXT or _NAME.fullmatch(text):
        return True
    try:  # JSON in a string: how arguments and results are nested, with the keys of dicts
        nested = json.loads(text)
    except ValueError:
        return False
    return not isinstance(nested, str) and strange(nested, "nested") is None


def is_expression(text: str) -> bool:
    """Return whether a text is arithmetic over sizes, such as ``2*Max(1, s0)`` or ``L['x'].size()[0] <= 64``."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return not set(text) & set("#\\\n") and all(map(_is_arithmetic, ast.walk(tree)))


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        called = node.func
        return called.id in _FUNCTIONS if isinstance(called, ast.Name) else isinstance(called, ast.Attribute)
    if isinstance(node, ast.Attribute):
        return node.attr in _METHODS
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) or (
            isinstance(node.value, str) and node.value.isidentifier()
        )
    return isinstance(node, _NODES)


def _is_operator(name: str) -> bool:
    module, *rest = name.split(".")
    found: Any = _MODULES.get(module)
    for each in rest:
        found = getattr(found, each, None)
    return isinstance(found, OpOverload | HigherOrderOperator) or (callable(found) and found in _SYM_OPS)
