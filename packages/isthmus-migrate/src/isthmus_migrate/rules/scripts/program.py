"""Trace values of names in a script back through assignments, arguments and attributes."""

import ast
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Scope: TypeAlias = ast.Module | ast.ClassDef | Function


class NotRecognised(Exception):
    """The script is not supported and not changed; the message is the reason.

    Attributes:
        line: line, from 1.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class Variable(NamedTuple):
    """A variable of a function or module, or an attribute of a class's instances.

    Attributes:
        scope: the function, module or class it belongs to.
        name: its name; of an attribute without ``self.``.
    """

    scope: Scope
    name: str


class Binding(NamedTuple):
    """One assignment to a variable.

    Attributes:
        statement: the assigning statement.
        value: the assigned value; None if it is unpacked from something unknown.
    """

    statement: ast.stmt
    value: ast.expr | None


class Program:
    """The syntax tree of a script, with cached queries."""

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        self.parents = {
            child: parent for parent in ast.walk(self.tree) for child in ast.iter_child_nodes(parent)
        }
        self.nodes = list(ast.walk(self.tree))
        self.imports = _imports(self.nodes)
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        for statement in self.tree.body:
            if isinstance(statement, Function):
                self.functions[statement.name] = statement
            elif isinstance(statement, ast.ClassDef):
                self.classes[statement.name] = statement
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.bindings = self._bindings()
        self._callees: dict[ast.Call, Function | None] = {}
        self._sites: dict[Function, list[ast.Call]] = {}

    def qualified(self, node: ast.expr) -> str:
        """Resolve a dotted name by the imports, ``"torch.nn.DataParallel"``; "" for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.imports.get(node.id, node.id), *reversed(parts)])

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the ancestors of a node, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def function(self, node: ast.AST) -> Function | None:
        """Return the function that contains a node."""
        return next((each for each in self.ancestors(node) if isinstance(each, Function)), None)

    def owner(self, function: Function) -> ast.ClassDef | None:
        """Return the class of a method."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the innermost statement that contains a node."""
        if isinstance(node, ast.stmt):
            return node
        return next(each for each in self.ancestors(node) if isinstance(each, ast.stmt))

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the block that contains a statement."""
        parent = self.parents[statement]
        for field in ("body", "orelse", "finalbody"):
            block = getattr(parent, field, None)
            if isinstance(block, list) and statement in block:
                return block
        return [statement]

    def variable(self, node: ast.expr) -> Variable | None:
        """Return the variable that an expression names."""
        function = self.function(node)
        if isinstance(node, ast.Name):
            while function is not None:
                if (function, node.id) in self.bindings or node.id in parameters(function):
                    return Variable(function, node.id)
                function = self.function(function)
            return Variable(self.tree, node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            owner = self.owner(function) if function is not None else None
            return Variable(owner, node.attr) if owner is not None else None
        return None

    def callee(self, call: ast.Call) -> Function | None:
        """Return the script's function that a call runs; ``__init__`` for a class."""
        if call not in self._callees:
            self._callees[call] = None  # the answer during lookup, in case of recursion
            self._callees[call] = self._callee(call)
        return self._callees[call]

    def _callee(self, call: ast.Call) -> Function | None:
        if isinstance(call.func, ast.Name):
            if call.func.id in self.classes:
                return method(self.classes[call.func.id], "__init__")
            return self.functions.get(call.func.id)
        if not isinstance(call.func, ast.Attribute):
            return None
        owners = self._owners(call.func.value)
        found = [each for each in (method(owner, call.func.attr) for owner in owners) if each is not None]
        return found[0] if len(found) == 1 else None

    def call_sites(self, function: Function) -> list[ast.Call]:
        """Return the calls of a function of this script."""
        if function not in self._sites:
            self._sites[function] = []
            self._sites[function] = [call for call in self.calls if self.callee(call) is function]
        return self._sites[function]

    def argument(self, call: ast.Call, function: Function, name: str) -> ast.expr | None:
        """Return the argument that a call passes for a parameter."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        names = parameters(function)
        position = names.index(name) - (1 if self.owner(function) is not None else 0)
        return call.args[position] if 0 <= position < len(call.args) else None

    def origins(self, node: ast.expr, seen: frozenset[Variable] = frozenset()) -> list[ast.expr]:
        """Return the expressions that create the value of an expression, if this script shows them."""
        if isinstance(node, ast.IfExp):
            return [*self.origins(node.body, seen), *self.origins(node.orelse, seen)]
        if isinstance(node, ast.Call) and (function := self.callee(node)) is not None:
            returned = [] if function.name == "__init__" else returns(function)
            return [each for value in returned for each in self.origins(value, seen)] or [node]
        variable = self.variable(node)
        if variable is None or variable in seen:
            return [node]
        values = self.values(variable)
        seen = seen | {variable}
        return [each for value in values for each in self.origins(value, seen)] or [node]

    def reached_variables(
        self, node: ast.expr, seen: frozenset[Variable] = frozenset()
    ) -> frozenset[Variable]:
        """Return the variables between a name and the origin of its value."""
        variable = self.variable(node)
        if variable is None or variable in seen:
            return seen
        seen |= {variable}
        for value in self.values(variable):
            seen = self.reached_variables(value, seen)
        return seen

    def assignments_of(self, variable: Variable) -> list[Binding]:
        """Return the assignments to a variable, without a ``None`` that another value replaces."""
        bindings = self.bindings.get((variable.scope, variable.name), [])
        return [each for each in bindings if not _is_none(each.value)] or bindings

    def values(self, variable: Variable) -> list[ast.expr]:
        """Return the values assigned to a variable or passed for it."""
        bound = [each.value for each in self.assignments_of(variable) if each.value is not None]
        if isinstance(variable.scope, Function) and variable.name in parameters(variable.scope):
            for call in self.call_sites(variable.scope):
                value = self.argument(call, variable.scope, variable.name)
                if value is not None:
                    bound.append(value)
        return bound

    def _owners(self, node: ast.expr) -> list[ast.ClassDef]:
        """Return the script's classes whose instance an expression may be."""
        function = self.function(node)
        if isinstance(node, ast.Name) and node.id == "self" and function is not None:
            owner = self.owner(function)
            return [owner] if owner is not None else []
        if isinstance(node, ast.Name):
            node_values: list[ast.expr] = self.values(self.variable(node) or Variable(self.tree, node.id))
        else:
            node_values = [node]
        made = (value.func for value in node_values if isinstance(value, ast.Call))
        return [
            self.classes[each.id] for each in made if isinstance(each, ast.Name) and each.id in self.classes
        ]

    def _bindings(self) -> dict[tuple[Scope, str], list[Binding]]:
        found: dict[tuple[Scope, str], list[Binding]] = {}
        for node in self.nodes:
            for target, value in _assignments(node):
                scope, name = self._place(target)
                if scope is not None:
                    assert isinstance(node, ast.stmt)
                    found.setdefault((scope, name), []).append(Binding(node, self._element(value, target)))
        return found

    def _place(self, target: ast.expr) -> tuple[Scope | None, str]:
        function = self.function(target)
        if isinstance(target, ast.Name):
            return (function or self.tree), target.id
        if (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        ):
            return (self.owner(function) if function is not None else None), target.attr
        return None, ""

    def _element(self, value: ast.expr | None, target: ast.expr) -> ast.expr | None:
        """Return the element of an unpacked value for a target."""
        parent = self.parents.get(target)
        if not isinstance(parent, ast.Tuple | ast.List):
            return value
        position = parent.elts.index(target)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            function = self.functions.get(value.func.id)
            values = returns(function) if function is not None else []
            value = values[0] if len(values) == 1 else None
        if isinstance(value, ast.Tuple) and len(value.elts) == len(parent.elts):
            return value.elts[position]
        return None


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_main(node: ast.AST) -> bool:
    """Whether a statement is ``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and any(
        isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(node.test)
    )


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters, in order."""
    arguments = function.args
    return [each.arg for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]


def method(owner: ast.ClassDef, name: str) -> Function | None:
    """Return the method of a class by name."""
    return next((each for each in owner.body if isinstance(each, Function) and each.name == name), None)


def walk_own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants, except nested functions and classes."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.ClassDef | ast.Lambda):
            yield from walk_own_scope(child)


def returns(function: Function) -> list[ast.expr]:
    """Return the returned expressions of a function."""
    return [
        node.value
        for statement in function.body
        for node in walk_own_scope(statement)
        if isinstance(node, ast.Return) and node.value is not None
    ]


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List):
                yield from ((each, node.value) for each in target.elts)
            else:
                yield target, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.AugAssign):
        yield node.target, None
    elif isinstance(node, ast.For | ast.AsyncFor):
        yield from ((each, None) for each in ast.walk(node.target) if isinstance(each, ast.Name))
    elif isinstance(node, ast.With | ast.AsyncWith):
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                yield item.optional_vars, item.context_expr


def _imports(nodes: list[ast.AST]) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found
