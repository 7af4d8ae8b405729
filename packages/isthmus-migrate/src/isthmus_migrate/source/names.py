"""Dotted names of expressions, resolved by the imports and simple assignments of the module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Lambda)
_LEAVES = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)


class Scope:
    """The names that a module, class or function binds.

    Args:
        parent: enclosing scope.
        path: its dotted name, with a dot at the end.
        is_class: whether it is a class, whose names are not visible in its methods.
    """

    __slots__ = ("bound", "is_class", "parent", "path", "rebound")

    def __init__(self, parent: Scope | None, path: str, is_class: bool = False) -> None:
        self.parent = parent
        self.path = path
        self.is_class = is_class
        self.bound: dict[
            str, str | ast.expr | None
        ] = {}  # dotted name, expression, or None for another object
        self.rebound: set[str] = set()  # names with another meaning too

    def bind(self, name: str, meaning: str | ast.expr | None = None) -> None:
        """Bind a name unless its meaning is already known (``try: import apex``, then ``apex = None``)."""
        known = self.bound.get(name)
        if known is None:
            self.bound[name] = meaning
        elif meaning is not None and meaning != known:
            self.rebound.add(name)

    def find(self, name: str) -> Scope | None:
        """Return the scope that binds a name visible here; None for builtins and names from ``import *``."""
        if name in self.bound:
            return self
        outer = self.parent
        while outer is not None and (outer.is_class or name not in outer.bound):
            outer = outer.parent
        return outer


class Index(NamedTuple):
    """Index of a syntax tree.

    Attributes:
        nodes: nodes by type, in source order.
        parents: parent of every node.
        names: resolver of its names.
    """

    nodes: dict[type[ast.AST], list[ast.AST]]
    parents: dict[ast.AST, ast.AST]
    names: Names


class Names:
    """Resolver of a module's names.

    Args:
        module: dotted name of the module, ``"package.module"``.
        is_package: whether it is an ``__init__.py``; relative imports then start one level lower.
    """

    def __init__(self, module: str, is_package: bool = False) -> None:
        self.module = module
        self._package = module if is_package else module.rpartition(".")[0]
        self._scope_of: dict[ast.AST, Scope] = {}
        self.top = Scope(None, f"{module}." if module else "")

    def qualified(self, node: ast.AST) -> str | None:
        """Return the dotted name of a Name or Attribute: ``"torch.cuda.synchronize"`` for ``cuda.synchronize`` after
        ``from torch import cuda``, ``"package.module.function"`` for a definition of the module itself; None for
        other expressions, parameters, and variables that are assigned anything else.
        """
        return self._resolve_name(node, 0)

    def scope(self, node: ast.AST) -> str:
        """Return the dotted name of the function, class or module that contains a Name or a definition."""
        return self._scope_of.get(node, self.top).path.rstrip(".")

    def slot(self, node: ast.Name) -> str:
        """Return the dotted name of the variable that a Name refers to, by imports but not by assignments.

        A name that nothing in the module binds is one of ``from config import *``, if there is any; "" otherwise.
        """
        scope = self._scope_of.get(node, self.top).find(node.id)
        if scope is None:
            star = self.top.bound.get("*")
            return f"{star[:-1]}{node.id}" if isinstance(star, str) else ""
        meaning = scope.bound[node.id]
        return meaning if isinstance(meaning, str) else f"{scope.path}{node.id}"

    def is_rebound(self, node: ast.AST) -> bool:
        """Whether the root of a dotted name has another meaning too: ``except ImportError: from own import Norm``."""
        while isinstance(node, ast.Attribute):
            node = node.value
        scope = self._scope_of.get(node, self.top).find(node.id) if isinstance(node, ast.Name) else None
        return scope is not None and node.id in scope.rebound  # type: ignore[attr-defined]

    def parameter(self, node: ast.arg) -> str:
        """Return the dotted name of a parameter."""
        return f"{self._scope_of.get(node, self.top).path}{node.arg}"

    def defined(self, node: ast.AST) -> str:
        """Return the dotted name of a function or class by its definition."""
        return f"{self._scope_of.get(node, self.top).path}{_name(node)}"

    def is_variable(self, node: ast.AST) -> bool:
        """Whether a node is a variable that an assignment binds to a name: ``wait`` after ``wait = torch.wait``."""
        scope = self._scope_of.get(node, self.top).find(node.id) if isinstance(node, ast.Name) else None
        return scope is not None and isinstance(scope.bound[node.id], ast.expr)  # type: ignore[attr-defined]

    def _resolve_name(self, node: ast.AST | None, depth: int) -> str | None:
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or depth > 8:  # a = b; b = a
            return None
        scope = self._scope_of.get(node, self.top).find(node.id)
        meaning = (
            scope.bound[node.id] if scope else "torch" if node.id == "torch" else None
        )  # from `import *`
        if isinstance(meaning, ast.expr):
            meaning = self._resolve_name(meaning, depth + 1)
        return ".".join([meaning, *reversed(attributes)]) if meaning else None

    def _enter(self, node: ast.AST, scope: Scope) -> Scope:
        """Record the bindings of a node; return the scope of its children."""
        if isinstance(node, ast.Name):
            self._scope_of[node] = scope
            if not isinstance(node.ctx, ast.Load):
                scope.bind(node.id)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                scope.bind(*_imported_name(alias))
        elif isinstance(node, ast.ImportFrom):
            base = self._absolute(node)
            for alias in node.names:
                scope.bind(alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(node.value, (ast.Name, ast.Attribute)):
                    scope.bind(target.id, node.value)
        elif isinstance(node, ast.arg):
            self._scope_of[node] = scope
            scope.bind(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            scope.bind(node.name)
        elif isinstance(node, _SCOPES):
            return self._define(node, scope)
        return scope

    def _define(self, node: ast.AST, scope: Scope) -> Scope:
        self._scope_of[node] = scope
        name = _name(node)
        if not isinstance(node, ast.Lambda):
            scope.bind(name, f"{scope.path}{name}")
        return Scope(scope, f"{scope.path}{name}.", isinstance(node, ast.ClassDef))

    def _absolute(self, node: ast.ImportFrom) -> str:
        package = self._package.split(".") if self._package else []
        kept = package[: len(package) + 1 - node.level] if node.level else []
        return ".".join([*kept, *([node.module] if node.module else [])])


def _name(node: ast.AST) -> str:
    """Return the name of a function or class; of a lambda, one that no other has."""
    return getattr(node, "name", "") or f"<lambda {node.lineno}:{node.col_offset}>"  # type: ignore[attr-defined]


def index(tree: ast.Module, module: str = "", is_package: bool = False) -> Index:
    """Walk a tree once.

    Args:
        tree: of the module.
        module: its dotted name.
        is_package: whether it is an ``__init__.py``.
    """
    names = Names(module, is_package)
    nodes: dict[type[ast.AST], list[ast.AST]] = {}
    parents: dict[ast.AST, ast.AST] = {}
    stack: list[tuple[ast.AST, Scope]] = [(tree, names.top)]
    while stack:
        node, scope = stack.pop()
        nodes.setdefault(type(node), []).append(node)
        inner = names._enter(node, scope)
        children = list(_children(node))
        for child in children:
            parents[child] = node
        stack += [(child, inner if _is_in_own_scope(node, child) else scope) for child in reversed(children)]
    return Index(nodes, parents, names)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, list):
            yield from (each for each in value if isinstance(each, ast.AST))
        elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
            yield value


def _is_in_own_scope(node: ast.AST, child: ast.AST) -> bool:
    """Whether a definition's child is evaluated in its scope: body and parameters, not decorators and bases."""
    return isinstance(child, (ast.stmt, ast.arguments)) or isinstance(node, ast.Lambda)


def _imported_name(alias: ast.alias) -> tuple[str, str]:
    """Return the name that ``import a.b`` or ``import a.b as c`` binds, and its meaning."""
    top = alias.name.partition(".")[0]
    return (alias.asname, alias.name) if alias.asname else (top, top)
