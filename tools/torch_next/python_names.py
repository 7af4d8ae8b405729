"""Look up Python names of PyTorch in its sources and stubs, without importing it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


class Python:
    """The Python part of one PyTorch.

    Args:
        site: folder that holds ``torch/``.
    """

    def __init__(self, site: Path) -> None:
        self._site = site

    def describe(self, name: str) -> str | None:
        """Return the signature of a dotted name, or its kind; None if it does not exist.

        What a module computes (``torch.float32``, names from C without a stub) is described as "unknown".
        """
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            source = self._source(parts[:count])
            if source is not None:
                return _find(self, source, parts[count:], depth=0)
        return None

    def _source(self, parts: list[str]) -> Path | None:
        folder = self._site.joinpath(*parts)
        for path in (folder / "__init__.py", folder / "__init__.pyi"):
            if path.is_file():
                return path
        return next((p for suffix in (".py", ".pyi") if (p := folder.with_suffix(suffix)).is_file()), None)

    def follow(self, module: str, name: str, depth: int) -> str | None:
        """Describe a name that a module imports."""
        source = self._source([*module.split("."), name])
        if source is not None:
            return "module"
        source = self._source(module.split("."))
        return _find(self, source, [name], depth) if source and depth < 5 else "unknown"


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _find(python: Python, path: Path, rest: list[str], depth: int) -> str | None:
    if not rest:
        return "module"
    body: list[ast.stmt] = _tree(path).body
    for place, name in enumerate(rest):
        last = place == len(rest) - 1
        node = _defined(body, name)
        if isinstance(node, ast.ClassDef):
            if last:
                return "class"
            if _defined(node.body, rest[place + 1]) is None and node.bases:
                return "unknown"  # perhaps of a base
            body = node.body
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return f"({_parameters(node.args)})" if last else "unknown"
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            return python.follow(module, name, depth + 1) if last and not node.level else "unknown"
        elif node is not None:
            return "value" if last else "unknown"
        else:
            return "unknown" if _is_open(body) else None
    return None


def _defined(body: list[ast.stmt], name: str) -> ast.AST | None:
    """Return the last statement that defines a name, also within if, try and with."""
    found: ast.AST | None = None
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
            found = node
        elif isinstance(node, ast.ImportFrom | ast.Import):
            if any((each.asname or each.name.partition(".")[0]) == name for each in node.names):
                found = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(leaf, ast.Name) and leaf.id == name for t in targets for leaf in ast.walk(t)):
                found = node
        else:
            for inner in ("body", "orelse", "handlers", "finalbody"):
                parts = getattr(node, inner, [])
                nested = [s for p in parts for s in (p.body if isinstance(p, ast.ExceptHandler) else [p])]
                found = _defined(nested, name) or found
    return found


def _is_open(body: list[ast.stmt]) -> bool:
    """Whether a module may have names that no statement shows: by import *, or set in a loop."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return True
        if isinstance(node, ast.For) or (isinstance(node, ast.FunctionDef) and node.name == "__getattr__"):
            return True
        if isinstance(node, ast.Expr) and "globals()" in ast.unparse(node):
            return True
    return False


def _parameters(arguments: ast.arguments) -> str:
    """Return the names of parameters, without annotations; a default shows as "="."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    words = [each.arg + ("=" if i >= without else "") for i, each in enumerate(positional)]
    if arguments.vararg:
        words.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        words.append("*")
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        words.append(each.arg + ("" if default is None else "="))
    if arguments.kwarg:
        words.append(f"**{arguments.kwarg.arg}")
    return ", ".join(words)
