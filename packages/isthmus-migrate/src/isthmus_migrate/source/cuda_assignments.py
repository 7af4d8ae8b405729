"""Functions of PyTorch for CUDA that a module assigns: ``torch.cuda.is_available = lambda: False``."""

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS

_FUNCTION = re.compile(r"torch\.cuda\.\w+(\.\w+)*|torch\.(Tensor|nn\.Module)\.(cuda|is_cuda)")
_AVAILABLE = "torch.cuda.is_available"
_METHOD = ".cuda"


class Reassigned(NamedTuple):
    """An assignment to a function of PyTorch.

    Attributes:
        name: of the function, ``"torch.cuda.is_available"``.
        target: what is assigned.
        function: the function around the assignment; None at the top level.
    """

    name: str
    target: ast.Attribute
    function: ast.AST | None


@functools.lru_cache(maxsize=1)
def find_reassigned(module: Module) -> Sequence[Reassigned]:
    """Return the assignments of a module to functions of PyTorch for CUDA."""
    found = []
    for node in module.of(ast.Attribute):
        name = module.names.qualified(node) or ""
        if isinstance(node.ctx, ast.Store) and _FUNCTION.fullmatch(name):
            around = module.nearest(node, *FUNCTIONS)
            found.append(Reassigned(name, node, around))
    return found


def depends(module: Module, node: ast.AST, asks_for_device: bool) -> Reassigned | None:
    """Return the assignment that decides what a node does; None if there is none.

    Args:
        module: the module.
        node: what would be converted.
        asks_for_device: whether it would then ask for the accelerator in use.
    """
    for each in find_reassigned(module):
        if each.function is not None and each.function not in module.enclosing(node):
            continue
        if (each.name == _AVAILABLE and asks_for_device) or each.name in _read_names(module, node):
            return each
        if each.name.endswith(_METHOD) and _METHOD in _read_names(module, node):
            return each
    return None


def _read_names(module: Module, node: ast.AST) -> Iterator[str]:
    """Yield the names that a node reads, and ``".cuda"`` for a method of this name."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute | ast.Name):
            name = module.names.qualified(each) or ""
            yield name
            if not name and getattr(each, "attr", "") == "cuda":
                yield _METHOD
