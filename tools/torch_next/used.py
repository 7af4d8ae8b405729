"""Collect what this repository uses of PyTorch: headers, Python names, and operators."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tools.repository import ASCEND, CORE, ROOT

_INCLUDE = re.compile(r"#include <((?:ATen|c10|torch)/[\w./]+)>")
_NAME = re.compile(r"torch(?:\.\w+)+")

Users = dict[str, set[str]]


def headers() -> Users:
    """Return the headers of PyTorch that C++ sources include, each with the files that do."""
    found: Users = defaultdict(set)
    for root in (CORE / "csrc", ASCEND / "csrc"):
        for path in root.rglob("*"):
            if path.suffix in (".h", ".cpp"):
                for header in _INCLUDE.findall(path.read_text()):
                    found[header].add(str(path.relative_to(ROOT)))
    return found


def names() -> Users:
    """Return the dotted names of PyTorch in Python sources, patched ones in strings too, each with the files."""
    found: Users = defaultdict(set)
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        for name in _names_of(ast.parse(path.read_text())):
            found[name].add(str(path.relative_to(ROOT)))
    return found


def _names_of(tree: ast.Module) -> Iterator[str]:
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            for alias in node.names:
                imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and (name := _dotted(node)):
            first, _, rest = name.partition(".")
            if first == "torch":
                yield name
            elif first in imported:
                yield f"{imported[first]}.{rest}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
            yield node.value


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def operators() -> set[str]:
    """Return the ATen operators that the opset, the C++ and Python registrations name, without overloads."""
    texts = [
        path.read_text()
        for pattern in ("packages/*/csrc/**/*.cpp", "packages/isthmus/src/isthmus/**/*.py")
        for path in ROOT.glob(pattern)
    ]
    called = re.compile(r"(?:aten::|m\.impl\(\"|torch\.ops\.aten\.|aten\.)(\w+)")
    return {name for text in texts for name in called.findall(text)}
