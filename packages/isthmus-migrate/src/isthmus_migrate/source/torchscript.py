"""Code that TorchScript compiles, in which a module's global objects cannot be used."""

import ast
from collections.abc import Iterator, Sequence

from isthmus_migrate.source.names import FUNCTIONS, Names

_DECORATORS = frozenset({"torch.jit.script", "torch.jit.script_method", "torch.jit.script_if_tracing"})
_EXPORT = "torch.jit.export"  # decorator of a method, whose class is compiled elsewhere
_EXCLUDED = frozenset({"torch.jit.ignore", "torch.jit.unused"})
_DEPTH = 8
_SAME = frozenset(
    {"cuda", "cpu", "to", "eval", "train", "half", "float", "double", "bfloat16", "requires_grad_"}
)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def scripted_functions(
    names: Names, definitions: Sequence[Definition], calls: Sequence[ast.Call], assigns: Sequence[ast.Assign]
) -> frozenset[ast.AST]:
    """Return the functions that TorchScript compiles: those given to it, and those that they call.

    Args:
        names: of the module.
        definitions: its functions and classes.
        calls: its calls.
        assigns: its assignments.
    """
    by_name = {_dotted(names, each): each for each in definitions}
    made = _objects(names, assigns)
    waiting: list[Definition] = [each for each in definitions if _is_decorated(names, each)]
    for call in calls:
        if names.qualified(call.func) in _DECORATORS and call.args:
            waiting += _compiled_definitions(names, call.args[0], made, by_name)
    done: set[ast.AST] = set()
    while waiting:
        each = waiting.pop()
        if each in done or _decorators(names, each) & _EXCLUDED:
            continue
        done.add(each)
        if isinstance(each, ast.ClassDef):
            waiting += [
                inner for inner in each.body if isinstance(inner, FUNCTIONS) and inner.name != "__init__"
            ]
            waiting += _parts(names, each, by_name)
        else:
            waiting += _used_definitions(names, each, by_name)
    return frozenset(each for each in done if isinstance(each, FUNCTIONS))


def _dotted(names: Names, node: Definition) -> str:
    return ".".join(filter(None, (names.scope(node), node.name)))


def _decorators(names: Names, node: Definition) -> set[str]:
    plain = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    return {names.qualified(each) or "" for each in plain}


def _is_decorated(names: Names, node: Definition) -> bool:
    return bool(_decorators(names, node) & (_DECORATORS | {_EXPORT}))


def _objects(names: Names, assigns: Sequence[ast.Assign]) -> dict[str, list[ast.expr]]:
    """Return the values that variables hold: ``net = Net()``."""
    found: dict[str, list[ast.expr]] = {}
    for each in assigns:
        for target in each.targets:
            if isinstance(target, ast.Name):
                found.setdefault(names.slot(target), []).append(each.value)
    return found


def _compiled_definitions(
    names: Names,
    node: ast.expr,
    made: dict[str, list[ast.expr]],
    by_name: dict[str, Definition],
    depth: int = 0,
) -> Iterator[Definition]:
    """Yield the definitions of an object that is compiled: ``f``, ``Net``, ``Net().cuda()`` or ``net``.

    If the module does not show what is compiled, it is any of its classes with a method ``forward``.
    """
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
        node = node.func.value
    values = made.get(names.slot(node), []) if isinstance(node, ast.Name) and depth < _DEPTH else []
    for value in values:
        yield from _compiled_definitions(names, value, made, by_name, depth + 1)
    name = names.qualified(node.func if isinstance(node, ast.Call) else node)
    if name in by_name:
        yield by_name[name]
    elif not name and not values:
        yield from (each for each in by_name.values() if _has_forward(each))


def _has_forward(node: Definition) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        getattr(each, "name", "") == "forward" for each in node.body
    )


def _used_definitions(
    names: Names, function: Function, by_name: dict[str, Definition]
) -> Iterator[Definition]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name | ast.Attribute) and (name := names.qualified(node)) in by_name:
            yield by_name[name]


def _parts(names: Names, module: ast.ClassDef, by_name: dict[str, Definition]) -> Iterator[Definition]:
    """Yield the classes that a module's ``__init__`` creates, as its submodules."""
    for function in module.body:
        if isinstance(function, FUNCTIONS) and function.name == "__init__":
            yield from (
                each for each in _used_definitions(names, function, by_name) if isinstance(each, ast.ClassDef)
            )
