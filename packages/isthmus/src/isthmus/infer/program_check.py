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
# Python's functions that guards call, and torch's, which take symbolic sizes.
_BUILT_IN = frozenset({"min", "max", "abs", "round", "int", "float", "bool"})
_OF = {
    "math": frozenset(
        "floor ceil trunc sqrt cos cosh acos sin sinh asin tan tanh atan log log2 isnan isinf isfinite".split()
    ),
    "torch": frozenset("sym_float sym_int sym_max sym_min sym_not sym_ite sym_sqrt sym_sum".split())
    | frozenset(name for name in dir(torch) if name.startswith("_sym_")),
}
_METHODS = frozenset({"size", "stride", "storage_offset"})
# Functions whose arguments but the first set how long a number becomes.
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift", "round", "RoundDecimal", "Float"})
_NUMBERS = frozenset({"Symbol", "Integer", "Float", "Rational"})
# A larger one takes any time and memory; so does a power in an exponent, or powers of powers.
_LARGEST_EXPONENT = 1024


def find_strange_text(value: Any, key: str = "") -> str | None:
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
    return next((found for each, k in parts if (found := find_strange_text(each, k)) is not None), None)


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
    return not isinstance(nested, str) and find_strange_text(nested, "nested") is None


def is_expression(text: str) -> bool:
    """Return whether a text is arithmetic over sizes as PyTorch prints it.

    Such as ``2*Max(1, s0)``, or a guard: ``L['x'].size()[0] % 8 == 0``, where ``L`` has the inputs by name.
    """
    try:
        tree = ast.parse(text, mode="eval")
        is_clean = not set(text) & set("#\\\n")
        return is_clean and _is_value(tree.body) and _degree(tree.body) <= _LARGEST_EXPONENT
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_value(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return text.isidentifier()
        case ast.Constant(value=value):
            return value is None or isinstance(value, int | float)
        case ast.BinOp(left=left, op=ast.Pow() | ast.LShift(), right=right):
            return _is_value(left) and _is_exponent(right)
        case ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare() | ast.IfExp():
            return all(_is_value(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
        case ast.Name(id=name):
            return not name.startswith("_")
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            return (
                name in _FUNCTIONS | _BUILT_IN
                and all(map(_is_value, args))
                and all(map(_is_flag, keywords))
                and (name not in _POWERS or all(map(_is_exponent, args[1:])))
            )
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="math" | "torch" as module), attr=name), args=args
        ):
            return name in _OF[module] and not node.keywords and all(map(_is_value, args))
        case ast.Attribute(value=ast.Name(id="math"), attr=name):
            return name in ("inf", "nan")
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return isinstance(getattr(torch, name, None), torch.dtype)
    return _is_place(node)


def _is_flag(keyword: ast.keyword) -> bool:
    """Return whether a keyword is an assumption of a symbol; ``key=`` of min and max is a function to call."""
    return keyword.arg is not None and getattr(keyword.value, "value", None) in (True, False)


def _is_exponent(node: ast.AST) -> bool:
    for each in ast.walk(node):
        if isinstance(each, ast.BinOp) or (isinstance(each, ast.Call) and not _is_number(each)):
            return False
        value = each.value if isinstance(each, ast.Constant) else 0
        if isinstance(value, int | float) and not abs(value) <= _LARGEST_EXPONENT:
            return False
    return _is_value(node)


def _degree(node: ast.AST) -> float:
    """Return the largest product of exponents of powers that are nested in each other."""
    match node:
        case ast.BinOp(left=base, op=ast.Pow() | ast.LShift(), right=right):
            exponents = [right]
        case ast.Call(func=ast.Name(id=name), args=[base, *exponents]) if name in _POWERS:
            pass
        case _:
            return max(map(_degree, ast.iter_child_nodes(node)), default=1)
    return math.prod(map(_largest_exponent, exponents)) * _degree(base)


def _largest_exponent(exponent: ast.AST) -> float:
    """Return a bound of an exponent, at least 1; of one that is not constant the largest."""
    parts = list(ast.walk(exponent))
    if any(isinstance(each, ast.Name) and each.id not in _NUMBERS - {"Symbol"} for each in parts):
        return _LARGEST_EXPONENT
    numbers = [each.value for each in parts if isinstance(each, ast.Constant)]
    return max([1, *(abs(each) for each in numbers if isinstance(each, int | float))])


def _is_number(call: ast.Call) -> bool:
    return _is_place(call) or (isinstance(call.func, ast.Name) and call.func.id in _NUMBERS)


def _is_place(node: ast.AST) -> bool:
    """Return whether a node names an input, a part of it, or sizes: ``L['cache']['k'][0].stride()[1]``."""
    match node:
        case ast.Name(id="L"):
            return True
        case ast.Subscript(value=value, slice=ast.Constant(value=int())):
            return _is_place(value)
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
            return _NAME.fullmatch(key) is not None and _is_place(value)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=[], keywords=[]):
            return name in _METHODS and _is_place(value)
        case ast.Attribute(value=value, attr=name):
            return not name.startswith("_") and _is_place(value)
    return False


def _is_operator(name: str) -> bool:
    module, *rest = name.split(".")
    found: Any = _MODULES.get(module)
    for each in rest:
        found = getattr(found, each, None)
    return isinstance(found, OpOverload | HigherOrderOperator) or (callable(found) and found in _SYM_OPS)
