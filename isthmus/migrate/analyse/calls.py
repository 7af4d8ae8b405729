"""Definitions, attributes and calls of a module, for the call graph of the project."""

import ast
import builtins
import sys
from collections.abc import Iterator
from typing import NamedTuple

from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module

_ELSEWHERE = sys.stdlib_module_names | {
    "torch",
    "numpy",
}  # packages that never define the project's functions
_BUILTINS = frozenset(dir(builtins)) - {"super"}


class Reference(NamedTuple):
    """A name in a function that refers to a callable.

    Attributes:
        scope: dotted name of the enclosing function.
        name: dotted name; ``()`` after a part stands for its result: ``"package.Model().generate"``.
        absolute: whether the name starts with a module; else with a variable of the scope: ``"self.layer"``.
        called: whether it is called here; else it is passed as an argument, as to a checkpoint.
    """

    scope: str
    name: str
    absolute: bool
    called: bool = True


class Facts(NamedTuple):
    """Definitions, variables and calls of a module.

    Attributes:
        module: its dotted name.
        functions: dotted name -> a finding at its definition, without message.
        classes: dotted name -> dotted names of its bases.
        imports: name at module level -> dotted name that it refers to.
        held: scope and variable (or ``"self.layer"``) -> its possible values.
        references: what its functions call.
    """

    module: str
    functions: dict[str, Finding]
    classes: dict[str, list[str]]
    imports: dict[str, str]
    held: dict[tuple[str, str], set[Reference]]
    references: set[Reference]


def gather(module: Module) -> Facts:
    """Collect the definitions, variables and calls of a module."""
    facts = Facts(module.name, {}, {}, {}, {}, set())
    top = module.names.top.bound.items()
    facts.imports.update((name, meaning) for name, meaning in top if isinstance(meaning, str))
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    functions = [*module.of(ast.FunctionDef), *module.of(ast.AsyncFunctionDef)]
    for function in functions:
        _note_function(module, function, facts)
    for each in module.of(ast.ClassDef):
        bases = (module.names.qualified(base) for base in each.bases)
        facts.classes[_defined(module, each)] = [base for base in bases if base]
    for call in module.of(ast.Call):
        facts.references.update(_called(module, call))
    for assignment in module.of(ast.Assign):
        for target in assignment.targets:
            _note_held(module, target, assignment.value, facts)
    for loop in module.of(ast.For):
        _note_held(module, loop.target, loop.iter, facts)
    return facts


def _note_function(module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef, facts: Facts) -> None:
    name = _defined(module, function)
    facts.functions[name] = module.finding("", Severity.REVIEW, function, name, "", "")
    for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
        annotated = module.names.qualified(each.annotation) if each.annotation else None
        if annotated and _may_be_ours(annotated):
            facts.held.setdefault((name, each.arg), set()).add(Reference(name, f"{annotated}()", True))


def _defined(module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    scope = module.names.scope(node)
    return f"{scope}.{node.name}" if scope else node.name


def _called(module: Module, call: ast.Call) -> Iterator[Reference]:
    """Yield the callee of a call, and the functions passed as arguments."""
    yield from _references(module, call.func, True)
    for value in (*call.args, *(each.value for each in call.keywords)):
        if isinstance(value, (ast.Name, ast.Attribute)):
            yield from _references(module, value, False)


def _note_held(module: Module, target: ast.expr, value: ast.expr, facts: Facts) -> None:
    """Record what a variable or ``self`` attribute may hold: instances created or variables used in the value."""
    root = _root(target)
    variable = _dotted(target)
    if root is None or not variable or variable.count(".") > 1:
        return
    scope = module.names.scope(root)
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            made = module.names.qualified(node.func)
            if made and _may_be_ours(made):
                facts.held.setdefault((scope, variable), set()).add(Reference(scope, f"{made}()", True))
    for named in value.args if isinstance(value, ast.Call) else [value]:
        if (other := _dotted(named)) and other != variable and module.names.qualified(named) is None:
            facts.held.setdefault((scope, variable), set()).add(Reference(scope, other, False))


def _references(module: Module, node: ast.expr, called: bool) -> Iterator[Reference]:
    root = _root(node)
    if root is None:
        return
    scope = module.names.scope(root).partition(".<lambda ")[0]
    name = module.names.qualified(node)
    if name:
        if _may_be_ours(name):
            yield Reference(scope, name, True, called)
    elif (made := _made(module, node)) is not None:
        yield Reference(scope, made, True, called)
    elif (dotted := _dotted(node)) and root.id not in _BUILTINS:
        yield Reference(scope, dotted, False, called)


def _made(module: Module, node: ast.expr) -> str | None:
    """Return ``package.Model()`` or ``package.Model().generate`` for such a call, else None."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Call):
        return None
    made = module.names.qualified(node.func)
    return ".".join([f"{made}()", *attributes]) if made and _may_be_ours(made) else None


def _dotted(node: ast.expr) -> str:
    """Return ``"self.layer"`` or ``"super().forward"``; "" for any other expression."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        return ".".join(["super()", *attributes])
    return ".".join([node.id, *attributes]) if isinstance(node, ast.Name) else ""


def _root(node: ast.expr) -> ast.Name | None:
    while not isinstance(node, ast.Name):
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return None
    return node


def _may_be_ours(name: str) -> bool:
    return name.partition(".")[0] not in _ELSEWHERE
