"""Find methods ``cuda`` of a project's own classes, which ``x.cuda()`` may call."""

import ast
import re
from collections.abc import Iterable

from isthmus.migrate.source.files import Kind, Source
from isthmus.migrate.source.notebooks import parse

_DEFINES = re.compile(r"\bdef\s+cuda\s*\(")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ADVICE = (
    "write `.to(device)` by hand; if the class has a method `to` as well, `isthmus migrate convert` does it"
)


def own_cuda(text: str) -> str:
    """Return the first class in a source with a method ``cuda`` but no ``to``, as ``"class Batch"``; "" if none."""
    if not _DEFINES.search(text):
        return ""
    try:
        tree = parse(text)
    except SyntaxError:
        return ""
    classes = (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef))
    return next((f"class {each.name}" for each in classes if _has_only_cuda(each)), "")


def own_cuda_of(sources: Iterable[Source]) -> str:
    """Return the first such class of a project: ``"class Batch of data/batch.py"``."""
    for source in sources:
        if source.kind is Kind.PYTHON and (name := own_cuda(source.text.removeprefix("\ufeff"))):
            return f"{name} of {source.name}"
    return ""


def _has_only_cuda(node: ast.ClassDef) -> bool:
    methods = {each.name for each in node.body if isinstance(each, _FUNCTIONS)}
    return "cuda" in methods and "to" not in methods
