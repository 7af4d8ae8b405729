"""Infer from the source whether an argument of ``cuda`` is an index, a device, or None."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.source.assignments import bindings
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import is_formatted, names_cuda
from isthmus_migrate.source.verdicts import WORD, Use, place_of

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Mod, ast.FloorDiv)
# Names of integers, of indices of devices (None where none was chosen), and of lists of indices.
_RANK = re.compile(r"(^|_)rank$", re.IGNORECASE)
_INDEX = re.compile(r"(^|_)(gpu|rank|(gpu|device|cuda)_?(id|idx|index))$", re.IGNORECASE)
INDICES = re.compile(r"(^|_)(gpus|(gpu|device|cuda)_?(ids|idxs|indices))$")
_DEVICE = re.compile(r"\w*(device|DEVICE)")
# Functions that return integers.
_INTEGERS = re.compile(r"(^|_)rank$|^(int|len|current_device|current_device_index|device_count)$")


def is_integer(module: Module, node: ast.expr) -> bool:
    """Whether a node is an integer and not None."""
    return _is_integer(module, node, frozenset()) or _is_set_elsewhere(module, node)


def _is_set_elsewhere(module: Module, node: ast.expr) -> bool:
    """Whether an attribute, not named as a device, is the argument of ``set_device`` or in ``device_ids=[...]``."""
    if not isinstance(node, ast.Attribute) or _DEVICE.fullmatch(node.attr):
        return False
    calls = (each for each in module.of(ast.Call) if len(each.args) == 1)
    given = [each.args[0] for each in calls if module.names.qualified(each.func) == "torch.cuda.set_device"]
    given += _device_ids(module)
    return any(isinstance(each, ast.Attribute) and module.code(each) == module.code(node) for each in given)


def _device_ids(module: Module) -> Iterator[ast.expr]:
    """Yield the elements of ``device_ids=[...]`` in a module."""
    for keyword in module.of(ast.keyword):
        if keyword.arg == "device_ids" and isinstance(keyword.value, ast.List):
            yield from keyword.value.elts


def is_index(module: Module, node: ast.expr) -> bool:
    """Whether a node is an integer, or None for no choice."""
    return _INDEX.search(last_name(node)) is not None or is_integer(module, node)


def is_current(module: Module, node: ast.expr) -> bool:
    """Whether a node is the index of the current device: torch.cuda.current_device(), or what was set as current."""
    if isinstance(node, ast.Call):
        return module.names.qualified(node.func) == "torch.cuda.current_device"
    return isinstance(node, ast.Name | ast.Attribute) and module.code(node) in _set_devices(module, node)


def _set_devices(module: Module, node: ast.expr) -> set[str]:
    """Return what earlier statements of the same function make the current device, unless it changes there."""
    around = module.nearest(node, ast.FunctionDef, ast.Module)
    found: list[str] = []
    for call in module.of(ast.Call):
        if module.names.qualified(call.func) != "torch.cuda.set_device" or len(call.args) != 1:
            continue
        found.append(module.code(call.args[0]))
        inside = around is not None and around in module.enclosing(call)
        if not inside or call.lineno >= node.lineno or not _is_always(module, call, around):
            return set()
    return set(found) if len(found) == 1 else set()


def _is_always(module: Module, call: ast.Call, around: ast.AST | None) -> bool:
    """Whether a call is a statement of the function itself, or under a test that its argument is not None."""
    statement = module.parents[call]
    return module.parents.get(statement) is around


def is_device(module: Module, node: ast.expr) -> bool:
    """Whether a node is a device or its name, and not None."""
    if names_cuda(node) or is_formatted(node):
        return True
    if isinstance(node, ast.Call):
        return module.names.qualified(node.func) == "torch.device"
    found = bindings(module, node)
    return bool(found) and all(
        isinstance(each, ast.Assign)
        and not isinstance(each.value, ast.Name)
        and is_device(module, each.value)
        for each in found
    )


def names_device(module: Module, node: ast.expr) -> bool:
    """Whether a dotted name is one of a device."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    verdict = module.around.flow.values.get(place_of(node), WORD)
    return _DEVICE.fullmatch(last_name(node)) is not None or (verdict.use is Use.DEVICE and verdict.certain)


def is_device_id(module: Module, node: ast.expr) -> bool:
    """Whether a name is an element of ``device_ids=[...]`` in its scope, or an attribute set from such names."""
    if isinstance(node, ast.Attribute):
        code = module.code(node)
        values = [
            each.value
            for each in module.of(ast.Assign)
            if any(module.code(target) == code for target in each.targets)
        ]
        named = [each for each in values if isinstance(each, ast.Name)]
        return bool(values) and named == values and all(is_device_id(module, each) for each in named)
    if not isinstance(node, ast.Name) or may_default_to_none(module, node):
        return False
    slot = module.names.slot(node)
    return any(
        isinstance(each, ast.Name) and each.id == node.id and module.names.slot(each) == slot
        for each in _device_ids(module)
    )


def is_size(module: Module, node: ast.expr) -> bool:
    """Whether a node is an integer, or a parameter whose default is one."""
    found = bindings(module, node)
    defaults = [_default(module, each) for each in found if isinstance(each, ast.arg)]
    return is_integer(module, node) or (bool(found) and [*map(type, defaults)] == [int] * len(found))


def may_default_to_none(module: Module, node: ast.expr) -> bool:
    """Whether a name is a parameter whose default is None."""
    parameters = (each for each in bindings(module, node) if isinstance(each, ast.arg))
    return any(_default(module, each) is None for each in parameters)


def _is_integer(module: Module, node: ast.expr, above: frozenset[str]) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return isinstance(node.op, _OPERATORS) and all(_is_integer(module, each, above) for each in sides)
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, (ast.Slice, ast.Tuple)):
        return INDICES.search(last_name(node.value)) is not None
    if isinstance(node, ast.Call):
        return _INTEGERS.search(last_name(node.func)) is not None
    found = bindings(module, node)
    if may_default_to_none(module, node):
        return False
    if _RANK.search(last_name(node)):
        return True
    if not isinstance(node, ast.Name) or node.id in above:
        return False
    return bool(found) and all(_binds_integer(module, each, above | {node.id}) for each in found)


def _binds_integer(module: Module, binding: ast.AST, above: frozenset[str]) -> bool:
    if isinstance(binding, ast.Assign):
        return _is_integer(module, binding.value, above)
    if isinstance(binding, ast.For | ast.comprehension):
        made = binding.iter
        return isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "range"
    return isinstance(binding, ast.arg) and getattr(binding.annotation, "id", "") == "int"


def _default(module: Module, parameter: ast.arg) -> object:
    """Return the constant that is a parameter's default; ... if it has none."""
    arguments = module.parents[parameter]
    assert isinstance(arguments, ast.arguments)
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: dict[ast.arg, ast.expr | None] = dict(
        zip(positional[::-1], arguments.defaults[::-1], strict=False)
    )
    defaults |= dict(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    default = defaults.get(parameter)
    return default.value if isinstance(default, ast.Constant) else ...
