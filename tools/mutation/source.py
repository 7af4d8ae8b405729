"""Mutants of single expressions in the source of a Python operator library.

The source is compiled once with all mutants: each expression ``e`` that can be changed to ``m`` becomes
``m if active(7) else e``. ``active`` also records which mutants a call reaches.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from isthmus.opset.library import Library
from tools.mutation import reductions

MUTATIONS: dict[str, tuple[str, ...]] = {  # mutations of each class
    "formula": ("operator replaced", "source operands swapped", "condition negated", "constant changed",
                "term dropped", "sign dropped", "eps outside the root"),
    "tail": ("comparison moved",),
    "accumulation": ("half precision inside", "accumulated in float16", "accumulated in float32", "stops at 2048",
                     "stops at 4096", "stops at 65536", "last term lost", "variance in one pass"),
    "memory": ("statement dropped",),
    "special values": ("maximum not subtracted", "NaN not propagated"),
}  # fmt: skip
_CLASSES = {name: kind for kind, names in MUTATIONS.items() for name in names}
# Functions that register kernels: they run when the library is imported, not in kernels.
_NOT_KERNELS = ("operator", "register", "writes", "each", "with_one", "with_each")
_UNSWAPPED = ("isinstance", "zip", "map", "slice", "range", "enumerate")
_CASTS = ("double", "exact", "wide")

_REPLACED: dict[type[Any], type[Any]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_ORDERED = (ast.Sub, ast.Div, ast.Pow, ast.FloorDiv, ast.Mod, ast.MatMult)
_COMPARED: dict[type[Any], type[Any]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_FUNCTIONS = {
    "maximum": "minimum", "minimum": "maximum", "amax": "amin", "amin": "amax", "argmax": "argmin",
    "argmin": "argmax", "floor": "ceil", "trunc": "floor", "rint": "trunc", "sum": "mean", "mean": "sum",
    "floor_divide": "divide", "zeros": "ones", "cumsum": "cumprod",
}  # fmt: skip
_STABILIZED = "maximum not subtracted"
_WITH_SOFTMAX = ("attention.py", "llm_loss.py", "llm_softmax.py", "normalization.py")
_IGNORING_NAN = {"maximum": "fmax", "minimum": "fmin"}
_SEQUENCES = (ast.List, ast.Tuple, ast.ListComp)


class Site(NamedTuple):
    """A mutant of the source.

    Attributes:
        number: its index among all mutants of the source.
        mutation: name of the mutation operator.
        kind: class of the mistake.
        place: file and line, such as ``pointwise.py:31``.
        where: text of that line.
        before: the original expression.
        after: the mutated expression.
    """

    number: int
    mutation: str
    kind: str
    place: str
    where: str
    before: str
    after: str

    @property
    def detail(self) -> str:
        """Describe the mutant without its line number, which changes over time."""
        return f"{_short(self.before)} -> {_short(self.after)} in: {_short(self.where, 200)}"


def _short(text: str, limit: int = 90) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


class Source:
    """An operator library compiled with its mutants.

    Args:
        path: file that defines ``library``.
        package: package of that file; the modules it imports from this package are compiled with mutants too.

    Attributes:
        library: the library that the file defines.
        sites: all mutants.
        active: number of the active mutant; -1 for none.
        reached: numbers of the mutants whose expression was executed.
    """

    def __init__(self, path: Path, package: str = "") -> None:
        self.sites: list[Site] = []
        self.active = -1
        self.reached: set[int] = set()
        self._folder, self._package = path.parent, package
        self._modules: dict[str, ModuleType] = {}
        self.library: Library = self._load(path.stem).library

    def _load(self, name: str) -> ModuleType:
        """Load the module of a dotted name below the folder, with mutants."""
        if name in self._modules:
            return self._modules[name]
        path = self._folder / name.replace(".", "/")
        module = ModuleType(f"isthmus._mutants_of_{name}")
        self._modules[name] = sys.modules[module.__name__] = module  # typing looks up a class by its module
        if path.is_dir():
            return module
        path = path.with_suffix(".py")
        module.__dict__.update(__file__=str(path), active__=self._is_active, half__=_half, wrong__=_wrong)
        text = path.read_text()
        tree = ast.parse(text)
        tree.body = [each for each in tree.body if not self._import(each, module)]
        tree = _Weaver(self.sites, path.name, text.splitlines()).visit(tree)
        exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), module.__dict__)
        return module

    def _import(self, statement: ast.stmt, module: ModuleType) -> bool:
        """Execute an import from the library's package with mutants; return False for any other statement."""
        if not self._package or not isinstance(statement, ast.ImportFrom):
            return False
        package, _, name = (statement.module or "").partition(f"{self._package}.")
        if package or not name:
            return False
        origin = self._load(name)
        for alias in statement.names:
            inside = hasattr(origin, alias.name)
            value = getattr(origin, alias.name) if inside else self._load(f"{name}.{alias.name}")
            setattr(module, alias.asname or alias.name, value)
        return True

    def _is_active(self, index: int) -> bool:
        self.reached.add(index)
        return index == self.active


def _half(value: Any) -> Any:
    """Round floating-point arrays, also of a list, to float16; return other values unchanged."""
    if isinstance(value, list):
        return [_half(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "fV" and value.dtype.itemsize > 2:
        return value.astype(np.float16)
    return value


def _wrong(mutation: str, name: str) -> Any:
    return reductions.mutants(name)[mutation]


class _Weaver(ast.NodeTransformer):
    """Insert the mutants of functions and lambdas into a module."""

    def __init__(self, sites: list[Site], file: str, lines: list[str]) -> None:
        self._sites, self._file, self._lines = sites, file, lines
        self._depth = 0

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.FunctionDef):
            return self._function(node)
        if isinstance(node, ast.Lambda):
            self._depth += 1
            node.body = self.visit(node.body)
            self._depth -= 1
            return node
        if not self._depth or isinstance(node, (ast.JoinedStr, ast.arguments)):
            return node if self._depth else self.generic_visit(node)
        pristine = copy.deepcopy(node)
        woven = self.generic_visit(node)
        if isinstance(node, ast.stmt):
            return self._statement(pristine, woven)
        readable = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if isinstance(node, ast.expr) and readable and not isinstance(node, (ast.Slice, ast.Starred)):
            return self._expression(pristine, woven)
        return woven

    def _function(self, node: ast.FunctionDef) -> ast.AST:
        if not self._depth and node.name in _NOT_KERNELS:
            return node
        self._depth += 1
        body: list[ast.stmt] = []
        for statement in node.body:
            woven = self.visit(statement)
            body.extend(woven if isinstance(woven, list) else [woven])
        node.body = body
        self._depth -= 1
        return node

    def _test(self, mutation: str, before: ast.AST, after: str) -> ast.expr:
        index = len(self._sites)
        line = getattr(before, "lineno", 0)
        where = self._lines[line - 1].strip()
        place = f"{self._file}:{line}"
        self._sites.append(
            Site(index, mutation, _CLASSES[mutation], place, where, ast.unparse(before), after)
        )
        return ast.Call(ast.Name("active__", ast.Load()), [ast.Constant(index)], [])

    def _expression(self, pristine: Any, woven: Any) -> ast.expr:
        for mutation, changed in _changes(pristine):
            if mutation == _STABILIZED and self._file not in _WITH_SOFTMAX:
                continue
            test = self._test(mutation, pristine, ast.unparse(changed))
            woven = ast.IfExp(test, copy.deepcopy(changed), woven)
        return woven

    def _statement(self, pristine: Any, woven: Any) -> Any:
        if isinstance(pristine, ast.If):
            test = self._test("condition negated", pristine.test, f"not ({ast.unparse(pristine.test)})")
            woven.test = ast.IfExp(test, ast.UnaryOp(ast.Not(), pristine.test), woven.test)
            return woven
        targets = getattr(pristine, "targets", [])
        stores = any(isinstance(each, ast.Subscript) for each in targets)
        called = isinstance(pristine, ast.Expr) and isinstance(pristine.value, ast.Call)
        named = any(isinstance(each, ast.Name) for each in targets)  # is read later
        if (stores and not named) or isinstance(pristine, ast.AugAssign) or called:
            test = self._test("statement dropped", pristine, "")
            return ast.If(ast.UnaryOp(ast.Not(), test), [woven], [])
        return woven


def _changes(node: Any) -> Iterator[tuple[str, ast.expr]]:
    """Yield the mutants of one expression."""
    for kind, make in _MAKERS.items():
        if isinstance(node, kind):
            yield from make(node)


def _of_binary(node: ast.BinOp) -> Iterator[tuple[str, ast.expr]]:
    parts = (node.left, node.right)
    if any(isinstance(part, _SEQUENCES) for part in parts):
        return
    if type(node.op) in _REPLACED:
        yield "operator replaced", ast.BinOp(node.left, _REPLACED[type(node.op)](), node.right)
    if isinstance(node.op, ast.MatMult):
        for mutation in reductions.mutants("matmul"):
            yield mutation, ast.Call(_wrong_function(mutation, "matmul"), list(parts), [])
    if isinstance(node.op, _ORDERED):
        yield "source operands swapped", ast.BinOp(node.right, node.op, node.left)
    if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        for part in parts:
            yield "term dropped", part
    elif isinstance(node.op, ast.Div):
        yield "term dropped", node.left


def _of_comparison(node: ast.Compare) -> Iterator[tuple[str, ast.expr]]:
    if len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        yield "comparison moved", ast.Compare(node.left, [_COMPARED[type(node.ops[0])]()], node.comparators)


def _of_logic(node: ast.BoolOp) -> Iterator[tuple[str, ast.expr]]:
    yield "operator replaced", ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)


def _of_unary(node: ast.UnaryOp) -> Iterator[tuple[str, ast.expr]]:
    yield "sign dropped", node.operand


def _of_condition(node: ast.IfExp) -> Iterator[tuple[str, ast.expr]]:
    yield "condition negated", ast.IfExp(node.test, node.orelse, node.body)


def _of_constant(node: ast.Constant) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node.value, bool):
        yield "constant changed", ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield "constant changed", ast.Constant(node.value + 1)
    elif isinstance(node.value, float):
        yield "constant changed", ast.Constant(node.value * 1.5)


def _is_module(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in (names or ("np", "math"))


def _of_attribute(node: ast.Attribute) -> Iterator[tuple[str, ast.expr]]:
    """Yield the mutants of a NumPy function, called here or passed to another."""
    if not _is_module(node.value, "np"):
        return
    if node.attr in _IGNORING_NAN:
        yield "NaN not propagated", ast.Attribute(node.value, _IGNORING_NAN[node.attr], ast.Load())
    for mutation in reductions.mutants(node.attr):
        yield mutation, _wrong_function(mutation, node.attr)


def _wrong_function(mutation: str, name: str) -> ast.expr:
    return ast.Call(ast.Name("wrong__", ast.Load()), [ast.Constant(mutation), ast.Constant(name)], [])


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    first = node.args[0] if node.args else None
    if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
        for mutation in reductions.mutants(name):
            arguments = [node.func.value, *node.args]
            yield mutation, ast.Call(_wrong_function(mutation, name), arguments, node.keywords)
    if name in _CASTS and len(node.args) == 1:
        yield "half precision inside", ast.Call(ast.Name("half__", ast.Load()), [node], [])
    if name in _FUNCTIONS and isinstance(node.func, ast.Attribute):
        other = ast.Attribute(node.func.value, _FUNCTIONS[name], ast.Load())
        yield "operator replaced", ast.Call(other, node.args, node.keywords)
    if name == "sqrt" and isinstance(first, ast.BinOp) and isinstance(first.op, ast.Add):
        yield "eps outside the root", ast.BinOp(ast.Call(node.func, [first.left], []), ast.Add(), first.right)
    if name == "where" and len(node.args) == 3:
        swapped = [node.args[0], node.args[2], node.args[1]]
        yield "condition negated", ast.Call(node.func, swapped, node.keywords)
    elif (
        name not in _UNSWAPPED
        and len(node.args) > 1
        and not any(isinstance(arg, (ast.Starred, ast.Constant)) for arg in node.args[:2])
    ):
        swapped = [node.args[1], node.args[0], *node.args[2:]]
        yield "source operands swapped", ast.Call(node.func, swapped, node.keywords)


_MAKERS: dict[type[Any], Callable[[Any], Iterator[tuple[str, ast.expr]]]] = {
    ast.BinOp: _of_binary,
    ast.Compare: _of_comparison,
    ast.BoolOp: _of_logic,
    ast.UnaryOp: _of_unary,
    ast.IfExp: _of_condition,
    ast.Constant: _of_constant,
    ast.Call: _of_call,
    ast.Attribute: _of_attribute,
}
