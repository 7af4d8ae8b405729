"""Queries about calls and loops, shared by detectors."""

import ast
from collections.abc import Iterator

from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS

Loop = ast.For | ast.While | ast.AsyncFor
_BOUNDARIES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)


def passes(call: ast.Call, name: str) -> bool:
    """Whether a call passes this keyword, or may with ``**options``."""
    return any(each.arg in {name, None} for each in call.keywords)


def is_called(module: Module, node: ast.expr) -> bool:
    """Whether a name is the callee of a call."""
    parent = module.parents[node]
    return isinstance(parent, ast.Call) and parent.func is node


def is_constant(node: ast.expr | None, *values: object) -> bool:
    """Whether a node is one of these constants."""
    return isinstance(node, ast.Constant) and any(node.value is each or node.value == each for each in values)


def method(call: ast.Call) -> str:
    """Return the name of a called method: ``"to"`` for ``x.to(d)``; "" for a function."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def loops(module: Module, node: ast.AST) -> Iterator[Loop]:
    """The loops around a node in its own function, innermost first."""
    for outer in module.enclosing(node):
        if isinstance(outer, _BOUNDARIES):
            return
        if isinstance(outer, Loop):
            yield outer


def training_loops(module: Module) -> list[Loop]:
    """Return the innermost loops that call ``backward()``, without duplicates."""
    found: dict[Loop, None] = {}
    for call in module.of(ast.Call):
        if method(call) == "backward":
            found.update(dict.fromkeys(list(loops(module, call))[:1]))
    return list(found)


def is_conditional(module: Module, node: ast.AST, loop: Loop) -> bool:
    """Whether a node is executed in some iterations of a loop only."""
    for outer in module.enclosing(node):
        if outer is loop:
            return False
        if isinstance(outer, (ast.If, ast.IfExp, *_BOUNDARIES)):
            return True
    return False


def advise(module: Module, node: ast.AST, code: str, subject: str, message: str, advice: str) -> Finding:
    """Return a finding of what is optional."""
    return module.finding(code, Severity.ADVICE, node, subject, message, advice)
