"""Recognise values that are the storage of a tensor: its method ``to`` takes the device by its name only."""

import ast
import functools
from collections.abc import Collection, Iterator

from isthmus_migrate.source.assignments import Variable, assigned_values, variable
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.module import Module

_STORAGES = frozenset({"storage", "untyped_storage", "_typed_storage"})
_SAME = frozenset({"cuda", "cpu", "to", "clone"})
_DEPTH = 8


def is_storage(module: Module, node: ast.expr) -> bool:
    """Whether a value is a storage: ``x.storage()``, or the first parameter of a function given as map_location."""
    return _is_storage(module, node, _variables(module))


def _is_storage(module: Module, node: ast.expr, variables: Collection[Variable]) -> bool:
    if isinstance(node, ast.Call):
        method = getattr(node.func, "attr", "")
        moved = getattr(node.func, "value", None) if method in _SAME else None
        return method in _STORAGES or (moved is not None and _is_storage(module, moved, variables))
    return isinstance(node, ast.Name) and variable(module, node) in variables


@functools.lru_cache(maxsize=1)
def _variables(module: Module) -> Collection[Variable]:
    """Return the variables of a module that may be a storage."""
    given = (
        each for each in module.of(ast.arg) if each.arg == "storage" or each in _storage_parameters(module)
    )
    found = {variable(module, each) for each in given}
    values = [
        (variable(module, target), each.value)
        for each in module.of(ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    ]
    while more := {name for name, value in values if _is_storage(module, value, found)} - found:
        found |= more
    return found


@functools.lru_cache(maxsize=1)
def _storage_parameters(module: Module) -> frozenset[ast.arg]:
    """Return the parameters that are the storage in the functions that a module passes as map_location."""
    return frozenset(found for value in _map_locations(module) for found in _parameters(module, value, 0))


def _map_locations(module: Module) -> Iterator[ast.expr]:
    """Yield the values that a module passes as map_location."""
    for call in module.of(ast.Call):
        yield from (each.value for each in call.keywords if each.arg == "map_location")
        if module.names.qualified(call.func) == "torch.load":
            yield from call.args[1:2]
    for literal in module.of(ast.Dict):
        for key, value in zip(literal.keys, literal.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "map_location":
                yield value


def _parameters(module: Module, node: ast.expr, given: int, depth: int = 0) -> Iterator[ast.arg]:
    """Yield the storage's parameter of the functions that a value may be.

    Args:
        module: the module.
        node: the value.
        given: number of arguments that ``functools.partial`` passes before the storage.
        depth: number of variables followed so far.
    """
    if depth > _DEPTH:
        return
    if isinstance(node, ast.Lambda):
        yield from _parameter_at(node, given)
    elif isinstance(node, ast.IfExp):
        for each in (node.body, node.orelse):
            yield from _parameters(module, each, given, depth + 1)
    elif isinstance(node, ast.Call) and node.args and last_name(node.func) == "partial":
        yield from _parameters(module, node.args[0], given + len(node.args) - 1, depth + 1)
    elif isinstance(node, ast.Name | ast.Attribute):
        for function in _named_functions(module, node):
            yield from _parameter_at(function, given)
        for value in assigned_values(module, node):
            yield from _parameters(module, value, given, depth + 1)


def _named_functions(module: Module, node: ast.Name | ast.Attribute) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a module that a name is, or the methods that ``self.name`` may be."""
    name = module.names.qualified(node)
    is_own = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("self", "cls")
    for function in module.of(ast.FunctionDef):
        is_method = isinstance(module.parents[function], ast.ClassDef)
        if module.names.defined(function) == name or (is_own and is_method and function.name == node.attr):  # type: ignore[union-attr]
            yield function


def _parameter_at(function: ast.Lambda | ast.FunctionDef, place: int) -> Iterator[ast.arg]:
    parameters = [*function.args.posonlyargs, *function.args.args]
    if parameters and parameters[0].arg in ("self", "cls"):
        place += 1
    yield from parameters[place : place + 1]
