"""Values and variables, as far as a module shows what gets into them."""

import ast

from isthmus.migrate.source.module import Module


def assigned(module: Module, variable: ast.Name | ast.Attribute) -> list[ast.expr]:
    """Return the values that a module assigns to a variable or attribute; none if it may have others."""
    values = {target: each.value for each in module.of(ast.Assign) for target in each.targets}
    if isinstance(variable, ast.Attribute):
        name = ast.unparse(variable)
        targets = (each for each in values if isinstance(each, ast.Attribute))
        return [values[each] for each in targets if ast.unparse(each) == name]
    found = bindings(module, variable)
    stored = [each.value for each in found if isinstance(each, ast.Assign)]
    return stored if len(stored) == len(found) else []


def bindings(module: Module, node: ast.expr) -> list[ast.AST]:
    """Return the bindings of a variable in its scope: assignments, loops, parameters, or the name itself."""
    if not isinstance(node, ast.Name):
        return []
    slot = module.names.slot(node)
    stored = [
        each
        for each in module.of(ast.Name)
        if each.id == node.id and isinstance(each.ctx, ast.Store) and module.names.slot(each) == slot
    ]
    arguments = [
        each for each in module.of(ast.arg) if each.arg == node.id and module.names.parameter(each) == slot
    ]
    return [*(_binding(module, each) for each in stored), *arguments]


def _binding(module: Module, name: ast.Name) -> ast.AST:
    parent = module.parents[name]
    return parent if isinstance(parent, ast.Assign | ast.For | ast.comprehension) else name


def reads(module: Module, variable: ast.expr) -> list[ast.Name]:
    """Return where a local or global variable is read; [] for any other target of an assignment."""
    if not isinstance(variable, ast.Name):
        return []
    slot = module.names.slot(variable)
    names = (
        each for each in module.of(ast.Name) if each.id == variable.id and isinstance(each.ctx, ast.Load)
    )
    return [each for each in names if module.names.slot(each) == slot]


def fields(module: Module, call: ast.Call) -> frozenset[str]:
    """Return the attributes that are read of a call's result, directly or of the variable that holds it."""
    parent = module.parents[call]
    if isinstance(parent, ast.Attribute):
        return frozenset({parent.attr})
    holders = reads(module, parent.targets[0]) if isinstance(parent, ast.Assign) else []
    above = (module.parents[each] for each in holders)
    return frozenset(each.attr for each in above if isinstance(each, ast.Attribute))
