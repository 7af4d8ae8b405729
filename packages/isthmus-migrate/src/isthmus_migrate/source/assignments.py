"""Values and variables, as far as a module shows what gets into them."""

import ast
import functools
from collections.abc import Mapping
from typing import NamedTuple

from isthmus_migrate.source.module import Module

Variable = tuple[str, str]  # a name, and its slot


class Uses(NamedTuple):
    """The places where a variable is bound and read, in source order.

    Attributes:
        stored: names that an assignment, loop or other statement binds.
        arguments: parameters of this name.
        read: names that are read.
    """

    stored: list[ast.Name]
    arguments: list[ast.arg]
    read: list[ast.Name]


def assigned_values(module: Module, variable: ast.Name | ast.Attribute) -> list[ast.expr]:
    """Return the values that a module assigns to a variable or attribute; none if it may have others."""
    if isinstance(variable, ast.Attribute):
        return _attributes(module).get(ast.unparse(variable), [])
    found = bindings(module, variable)
    stored = [each.value for each in found if isinstance(each, ast.Assign)]
    return stored if len(stored) == len(found) else []


def bindings(module: Module, node: ast.expr) -> list[ast.AST]:
    """Return the bindings of a variable in its scope: assignments, loops, parameters, or the name itself."""
    found = _uses(module, node)
    return [*(_binding(module, each) for each in found.stored), *found.arguments]


def find_reads(module: Module, variable: ast.expr) -> list[ast.Name]:
    """Return where a local or global variable is read; [] for any other target of an assignment."""
    return _uses(module, variable).read


def variable(module: Module, node: ast.Name | ast.arg) -> Variable:
    """Return a name with its slot, which are those of every other use of the variable."""
    if isinstance(node, ast.arg):
        return node.arg, module.names.parameter(node)
    return node.id, module.names.slot(node)


def _uses(module: Module, node: ast.expr) -> Uses:
    """Return the uses of a variable; none of any other expression."""
    found = _variables(module).get(variable(module, node)) if isinstance(node, ast.Name) else None
    return found or Uses([], [], [])


@functools.lru_cache(maxsize=1)
def _variables(module: Module) -> Mapping[Variable, Uses]:
    found: dict[Variable, Uses] = {}
    for name in module.of(ast.Name):
        uses = found.setdefault(variable(module, name), Uses([], [], []))
        if not isinstance(name.ctx, ast.Del):
            (uses.stored if isinstance(name.ctx, ast.Store) else uses.read).append(name)
    for argument in module.of(ast.arg):
        found.setdefault(variable(module, argument), Uses([], [], [])).arguments.append(argument)
    return found


@functools.lru_cache(maxsize=1)
def _attributes(module: Module) -> Mapping[str, list[ast.expr]]:
    """Return the values that a module assigns to attributes, by the source of these."""
    found: dict[str, list[ast.expr]] = {}
    for each in module.of(ast.Assign):
        for target in each.targets:
            if isinstance(target, ast.Attribute):
                found.setdefault(ast.unparse(target), []).append(each.value)
    return found


def _binding(module: Module, name: ast.Name) -> ast.AST:
    parent = module.parents[name]
    return parent if isinstance(parent, ast.Assign | ast.For | ast.comprehension) else name


def fields(module: Module, call: ast.Call) -> frozenset[str]:
    """Return the attributes that are read of a call's result, directly or of the variable that holds it."""
    parent = module.parents[call]
    if isinstance(parent, ast.Attribute):
        return frozenset({parent.attr})
    holders = find_reads(module, parent.targets[0]) if isinstance(parent, ast.Assign) else []
    above = (module.parents[each] for each in holders)
    return frozenset(each.attr for each in above if isinstance(each, ast.Attribute))
