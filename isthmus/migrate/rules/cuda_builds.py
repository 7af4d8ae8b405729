"""Tests for CUDA that choose the CUDA build of a package, or half precision."""

import ast
import re
from collections.abc import Iterator

from isthmus.migrate.rules.rule import is_read
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.strings import text

_BUILD = re.compile(
    r"[\w-]+-(gpu|cuda\d*|cu\d{2,3})\b.*|(CUDA|Tensorrt)ExecutionProvider|.*\+cu\d{2,3}\b.*|tensorrt.*|-cpu"
)
_HALF = re.compile(r"(use_|is_|with_)?(half|fp16)(_precision)?")


def chosen(module: Module, test: ast.expr) -> str:
    """Return the package, the option for half precision, or another name for CUDA, that a test chooses; else "".

    Args:
        module: the module.
        test: the test; or it is the value of a variable, possibly joined by ``and``, that is tested elsewhere.
    """
    below: ast.AST = test
    for above in module.enclosing(test):
        if isinstance(above, ast.Assign):
            return _by_variable(module, above.targets[0])
        if isinstance(above, ast.IfExp) and below is above.test:
            return next(_builds(above), "")
        if not (isinstance(above, ast.BoolOp) and isinstance(above.op, ast.And)):
            return ""
        below = above
    return ""


def _by_variable(module: Module, target: ast.expr) -> str:
    """Return what a variable or attribute chooses that holds a test."""
    name = ast.unparse(target)
    if _HALF.fullmatch(name.rpartition(".")[2]):
        return name
    scope = module.names.scope(target)
    for read in module.of(ast.Name) if isinstance(target, ast.Name) else ():
        parent = module.parents[read]
        if read.id != name or not is_read(read) or module.names.scope(read) != scope:
            continue
        if isinstance(parent, ast.IfExp) and read is parent.test:
            for build in _builds(parent):
                return build
    return ""


def _builds(choice: ast.IfExp) -> Iterator[str]:
    """Yield the strings of a choice that name a build of a package."""
    for part in (choice.body, choice.orelse):
        yield from (text(each) for each in ast.walk(part) if _BUILD.fullmatch(text(each)))
