"""Tests for CUDA that choose the CUDA build of a package, or half precision."""

import ast
import re

from isthmus_migrate.source.assignments import find_reads
from isthmus_migrate.source.cuda_branches import decision
from isthmus_migrate.source.cuda_only import PROVIDERS
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_BUILD = re.compile(
    r"[\w-]+-(gpu|cuda\d*|cu\d{2,3})\b.*|.*\+cu\d{2,3}\b.*|tensorrt.*|-cpu|" + "|".join(sorted(PROVIDERS))
)
_HALF = re.compile(r"(use_|is_|with_)?(half|fp16)(_precision)?")


def chosen_cuda_build(module: Module, test: ast.expr) -> str:
    """Return what a test chooses that other accelerators may not have, a predicate, or "".

    Args:
        module: the module.
        test: the test; or it is the value of a variable, possibly joined by ``and``, that is tested elsewhere.
    """
    node, part, holds, _ = decision(module, test)
    if isinstance(node, ast.Assign) and holds:
        return _by_variable(module, node.targets[0])
    return _builds(node) if isinstance(node, ast.IfExp) and part is node.test else ""


def _by_variable(module: Module, target: ast.expr) -> str:
    """Return what a variable or attribute that holds a test chooses, or ""."""
    name = ast.unparse(target)
    if _HALF.fullmatch(name.rpartition(".")[2]):
        return f"decides on half precision, {name}"
    choices = ((read, module.parents[read]) for read in find_reads(module, target))
    builds = (_builds(each) for read, each in choices if isinstance(each, ast.IfExp) and read is each.test)
    return next(filter(None, builds), "")


def _builds(choice: ast.IfExp) -> str:
    """Return the predicate of a choice with a string that names a build of a package, or ""."""
    texts = (text(each) for part in (choice.body, choice.orelse) for each in ast.walk(part))
    found = next(filter(_BUILD.fullmatch, texts), "")
    return f'chooses the build of a package, "{found}"' if found else ""
