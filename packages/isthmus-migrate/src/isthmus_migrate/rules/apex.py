"""Names of apex in a source."""

import ast

from isthmus_migrate.source.constants import gives_up
from isthmus_migrate.source.module import Module

_TYPE_TESTS = ("isinstance", "issubclass")


def public_name(name: str) -> str:
    """Return the public form of a dotted name of apex, ``"apex.normalization.FusedLayerNorm"``; "" for others.

    ``apex.normalization.fused_layer_norm.FusedLayerNorm`` is the same class.
    """
    parts = name.split(".")
    return ".".join([*parts[:2], parts[-1]]) if parts[0] == "apex" and len(parts) > 2 else ""


def is_optional(module: Module, node: ast.expr) -> bool:
    """Whether a file goes on where the import of a name of apex fails: ``except ImportError: FusedAdam = None``."""
    root = root_of(node)
    statements: list[ast.Import | ast.ImportFrom] = [*module.of(ast.Import), *module.of(ast.ImportFrom)]
    for statement in statements:
        around = module.parents[statement]
        bound = {(each.asname or each.name).partition(".")[0] for each in statement.names}
        if root in bound and isinstance(around, ast.Try) and statement in around.body:
            return not all(map(gives_up, around.handlers))
    return False


def root_of(node: ast.expr) -> str:
    """Return the first name of a dotted name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return getattr(node, "id", "")


def is_type_test(module: Module, node: ast.expr) -> bool:
    """Whether a class is an argument of isinstance, alone or in a tuple."""
    holder = module.parents[node]
    if isinstance(holder, ast.Tuple):
        holder = module.parents[holder]
    return (
        isinstance(holder, ast.Call) and isinstance(holder.func, ast.Name) and holder.func.id in _TYPE_TESTS
    )
