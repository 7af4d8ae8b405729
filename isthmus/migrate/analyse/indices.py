"""Infer from the source whether an argument is a device or a device index.

convert/integers.py does the same for convert's tree; this errs towards no.
"""

import ast

from isthmus.migrate.analyse.strings import formats, text
from isthmus.migrate.analyse.syntax import is_constant
from isthmus.migrate.source import words
from isthmus.migrate.source.module import Module

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Mod, ast.FloorDiv)


def is_index(module: Module, node: ast.expr) -> bool:
    """Whether a node is an integer, or None for no choice."""
    return words.INDEX.search(_last(node)) is not None or _is_integer(module, node, frozenset())


def is_device(module: Module, node: ast.expr) -> bool:
    """Whether a node is a device, or the name of one."""
    if isinstance(node, (ast.Name, ast.Attribute)) and words.DEVICE.fullmatch(ast.unparse(node)):
        return True
    return _is_certain_device(module, node)


def _is_integer(module: Module, node: ast.expr, above: frozenset[str]) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return isinstance(node.op, _OPERATORS) and all(_is_integer(module, each, above) for each in sides)
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, (ast.Slice, ast.Tuple)):
        return words.INDICES.search(_last(node.value)) is not None
    if isinstance(node, ast.Call):
        return words.INTEGERS.search(_last(node.func)) is not None
    found = _bindings(module, node)
    if any(isinstance(each, ast.arg) and _may_be_none(module, each) for each in found):
        return False
    if words.RANK.search(_last(node)):
        return True
    if not isinstance(node, ast.Name) or node.id in above:
        return False
    return bool(found) and all(_binds_integer(module, each, above | {node.id}) for each in found)


def _binds_integer(module: Module, binding: ast.AST, above: frozenset[str]) -> bool:
    if isinstance(binding, ast.Assign):
        return _is_integer(module, binding.value, above)
    if isinstance(binding, (ast.For, ast.comprehension)):
        made = binding.iter
        return isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "range"
    return isinstance(binding, ast.arg) and getattr(binding.annotation, "id", "") == "int"


def _is_certain_device(module: Module, node: ast.expr) -> bool:
    if text(node) or formats(node):
        return True
    if isinstance(node, ast.Call):
        return module.names.qualified(node.func) == "torch.device"
    found = _bindings(module, node)
    return bool(found) and all(
        isinstance(each, ast.Assign)
        and not isinstance(each.value, ast.Name)
        and _is_certain_device(module, each.value)
        for each in found
    )


def _bindings(module: Module, node: ast.expr) -> list[ast.AST]:
    """Return the bindings of a variable in the module: assignments, loops, parameters, or the name itself."""
    if not isinstance(node, ast.Name):
        return []
    stored = (each for each in module.of(ast.Name) if each.id == node.id and isinstance(each.ctx, ast.Store))
    arguments = (each for each in module.of(ast.arg) if each.arg == node.id)
    return [*(_binding(module, each) for each in stored), *arguments]


def _binding(module: Module, name: ast.Name) -> ast.AST:
    parent = module.parents[name]
    binds = isinstance(parent, (ast.Assign, ast.For, ast.comprehension))
    return parent if binds else name


def _may_be_none(module: Module, parameter: ast.arg) -> bool:
    """Whether the default of a parameter is None."""
    arguments = module.parents[parameter]
    assert isinstance(arguments, ast.arguments)
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip(positional[::-1], arguments.defaults[::-1], strict=False))
    defaults |= {
        each: value for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value
    }
    return is_constant(defaults.get(parameter), None)


def _last(node: ast.expr) -> str:
    """Return the last part of a dotted name; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
