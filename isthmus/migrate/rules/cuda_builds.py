"""Tests for CUDA that choose the CUDA build of a package, or half precision."""

import ast
import re

from isthmus.migrate.rules.rule import is_read
from isthmus.migrate.source.cuda_only import PROVIDERS
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.strings import text

_BUILD = re.compile(
    r"[\w-]+-(gpu|cuda\d*|cu\d{2,3})\b.*|.*\+cu\d{2,3}\b.*|tensorrt.*|-cpu|" + "|".join(sorted(PROVIDERS))
)
_HALF = re.compile(r"(use_|is_|with_)?(half|fp16)(_precision)?")


def chosen(module: Module, test: ast.expr) -> str:
    """Return what a test chooses that other accelerators may not have, a predicate, or "".

    Args:
        module: the module.
        test: the test; or it is the value of a variable, possibly joined by ``and``, that is tested elsewhere.
    """
    below: ast.AST = test
    for above in module.enclosing(test):
        if isinstance(above, ast.Assign):
            return _by_variable(module, above.targets[0])
        if isinstance(above, ast.IfExp) and below is above.test:
            return _builds(above)
        if not (isinstance(above, ast.BoolOp) and isinstance(above.op, ast.And)):
            return ""
        below = above
    return ""


def _by_variable(module: Module, target: ast.expr) -> str:
    """Return what a variable or attribute that holds a test chooses, or ""."""
    name = ast.unparse(target)
    if _HALF.fullmatch(name.rpartition(".")[2]):
        return f"decides on half precision, {name}"
    scope = module.names.scope(target)
    for read in module.of(ast.Name) if isinstance(target, ast.Name) else ():
        parent = module.parents[read]
        if read.id != name or not is_read(read) or module.names.scope(read) != scope:
            continue
        if isinstance(parent, ast.IfExp) and read is parent.test and (build := _builds(parent)):
            return build
    return ""


def _builds(choice: ast.IfExp) -> str:
    """Return the predicate of a choice with a string that names a build of a package, or ""."""
    texts = (text(each) for part in (choice.body, choice.orelse) for each in ast.walk(part))
    found = next(filter(_BUILD.fullmatch, texts), "")
    return f'chooses the build of a package, "{found}"' if found else ""
