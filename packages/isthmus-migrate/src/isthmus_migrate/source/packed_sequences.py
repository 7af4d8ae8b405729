"""Values that are a ``PackedSequence``, which has no attribute ``device``."""

import ast

from isthmus_migrate.source.assignments import bindings
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.module import Module

_MAKES = frozenset({"pack_padded_sequence", "pack_sequence", "PackedSequence"})
_SAME = frozenset(
    {"cuda", "cpu", "to", "float", "double", "half", "int", "long", "pin_memory", "type", "char", "short"}
)
_OF_TENSORS = frozenset(
    "dim dtype expand flatten mean min max ndim numel permute requires_grad reshape shape size squeeze sum "
    "transpose unsqueeze view".split()
)
_DEPTH = 8


def packs(module: Module) -> bool:
    """Whether a module speaks of packed sequences."""
    return module.mentions(*_MAKES)


def is_packed(module: Module, node: ast.expr, depth: int = 0) -> bool | None:
    """Whether a value is a packed sequence; None if the module does not show it."""
    if not packs(module):
        return False
    if depth > _DEPTH:
        return None
    if isinstance(node, ast.IfExp):
        return _any_of([is_packed(module, each, depth + 1) for each in (node.body, node.orelse)])
    if isinstance(node, ast.Call):
        return _call(module, node, depth)
    if isinstance(node, ast.Attribute):
        return "pack" in node.attr
    if not isinstance(node, ast.Name):
        return False
    if _is_used_as_tensor(module, node):
        return False
    found = bindings(module, node)
    parts = [_binding(module, node, each, depth) for each in found]
    known = _any_of(parts) if parts else None
    return known or ("pack" in node.id or known)


def _any_of(parts: list[bool | None]) -> bool | None:
    return True if True in parts else None if None in parts else False


def _call(module: Module, call: ast.Call, depth: int) -> bool | None:
    name = last_name(call.func)
    if name in _MAKES:
        return True
    if name in _SAME and isinstance(call.func, ast.Attribute):
        return is_packed(module, call.func.value, depth + 1)
    own = module.names.qualified(call.func)
    functions = [each for each in module.of(ast.FunctionDef) if own and module.names.defined(each) == own]
    results = [
        is_packed(module, each.value, depth + 1)
        for function in functions
        for each in ast.walk(function)
        if isinstance(each, ast.Return) and each.value is not None
    ]
    if functions:
        return _any_of(results)
    return False if (own or "").startswith("torch.") or isinstance(call.func, ast.Attribute) else None


def _binding(module: Module, name: ast.Name, binding: ast.AST, depth: int) -> bool | None:
    """Whether what a binding of a variable gives it is a packed sequence."""
    if isinstance(binding, ast.Assign):
        return is_packed(module, binding.value, depth + 1)
    if isinstance(binding, ast.arg):
        said = ast.unparse(binding.annotation) if binding.annotation else ""
        return True if "PackedSequence" in said else False if said.endswith("Tensor") else None
    if isinstance(binding, ast.For | ast.comprehension):
        return _holds(module, binding.iter, depth + 1)
    return None if binding is name else False


def _holds(module: Module, collection: ast.expr, depth: int) -> bool | None:
    """Whether a collection has a packed sequence in it; results of methods, as ``model.parameters()``, have none."""
    if depth > _DEPTH:
        return None
    if isinstance(collection, ast.List | ast.Tuple | ast.Set):
        return _any_of([is_packed(module, each, depth) for each in collection.elts])
    if isinstance(collection, ast.BinOp):
        return _any_of([_holds(module, each, depth + 1) for each in (collection.left, collection.right)])
    if isinstance(collection, ast.Name):
        values = [each.value for each in bindings(module, collection) if isinstance(each, ast.Assign)]
        return _any_of([_holds(module, each, depth + 1) for each in values]) if values else None
    return False if isinstance(collection, ast.Call) and isinstance(collection.func, ast.Attribute) else None


def _is_used_as_tensor(module: Module, name: ast.Name) -> bool:
    """Whether a module reads an attribute of a variable that only tensors have."""
    slot = module.names.slot(name)
    return any(
        each.attr in _OF_TENSORS
        and isinstance(each.value, ast.Name)
        and each.value.id == name.id
        and module.names.slot(each.value) == slot
        for each in module.of(ast.Attribute)
    )
