"""Names of apex in a source."""

import ast

from isthmus.migrate.source.module import Module

_TYPE_TESTS = ("isinstance", "issubclass")


def public(name: str) -> str:
    """Return the public form of a dotted name of apex, ``"apex.normalization.FusedLayerNorm"``; "" for others.

    ``apex.normalization.fused_layer_norm.FusedLayerNorm`` is the same class.
    """
    parts = name.split(".")
    return ".".join([*parts[:2], parts[-1]]) if parts[0] == "apex" and len(parts) > 2 else ""


def is_type_test(module: Module, node: ast.expr) -> bool:
    """Whether a class is an argument of isinstance, alone or in a tuple."""
    holder = module.parents[node]
    if isinstance(holder, ast.Tuple):
        holder = module.parents[holder]
    return (
        isinstance(holder, ast.Call) and isinstance(holder.func, ast.Name) and holder.func.id in _TYPE_TESTS
    )
