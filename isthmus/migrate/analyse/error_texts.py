"""Scripts that match the text of CUDA's out-of-memory error (IM132)."""

import ast
from collections.abc import Iterator

from isthmus.migrate.analyse.strings import text
from isthmus.migrate.analyse.syntax import method
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module

_ASK = {"startswith", "find", "index", "count", "search", "match"}  # methods and functions of re


def detect(module: Module) -> Iterator[Finding]:
    """``"CUDA out of memory" in str(error)``, ``str(error).startswith("CUDA out of memory")``."""
    if not module.mentions("out of memory"):
        return
    for constant in module.of(ast.Constant):
        words = text(constant)
        if words.lower().startswith("cuda") and "out of memory" in words and _is_asked(module, constant):
            said = "is CUDA's out-of-memory message; other accelerators have other messages"
            advice = "catch torch.OutOfMemoryError (`isthmus run` raises CUDA's message)"
            yield module.finding("IM132", Severity.REVIEW, constant, f'"{words}"', said, advice)


def _is_asked(module: Module, node: ast.expr) -> bool:
    """Whether a string, or the collection that contains it, is searched for in a text."""
    holder: ast.AST = module.parents[node]
    while isinstance(holder, (ast.List, ast.Tuple, ast.Set)):
        holder = module.parents[holder]
    if isinstance(holder, ast.Call):
        return method(holder) in _ASK
    return isinstance(holder, (ast.Compare, ast.comprehension, ast.For, ast.Assign))
