"""Blocks of statements that run together."""

import ast
import functools
import re
from collections.abc import Mapping

from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS

_BLOCKS = ("body", "orelse", "finalbody")
_LEAVES = re.compile(r"((sys|pytest)\.|os\._?)?exit\(|pytest\.skip\(|self\.skipTest\(")


def runs_with(module: Module, node: ast.AST) -> list[ast.AST]:
    """Return what runs whenever a node runs: its function, or a branch of it; [] for the top level of the module."""
    below = node
    for above in module.enclosing(node):
        if block := _block(above, below):
            return block
        below = above
    return []


def place(module: Module, node: ast.AST) -> tuple[list[ast.stmt], int]:
    """Return the block of a statement and its index there; an empty block for what is not a statement of a block."""
    return _places(module).get(node, ([], 0))


def statements_before(module: Module, node: ast.AST) -> list[ast.stmt]:
    """Return the statements before one in its block."""
    block, index = place(module, node)
    return block[:index]


def statements_after(module: Module, statement: ast.stmt) -> list[ast.stmt]:
    """Return the statements after one in its block."""
    block, index = place(module, statement)
    return block[index + 1 :]


@functools.lru_cache(maxsize=1)
def _places(module: Module) -> Mapping[ast.AST, tuple[list[ast.stmt], int]]:
    blocks = (getattr(each, name, None) for each in set(module.parents.values()) for name in _BLOCKS)
    lists = (each for each in blocks if isinstance(each, list))
    return {each: (block, index) for block in lists for index, each in enumerate(block)}


def leaves(statement: ast.stmt) -> bool:
    """Whether a statement leaves its block: the function, the loop or the program."""
    if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
        return True
    return isinstance(statement, ast.Expr) and _LEAVES.match(ast.unparse(statement)) is not None


def _block(above: ast.AST, below: ast.AST) -> list[ast.AST]:
    """Return the part of a node's parent that runs if the node does; [] if the parent runs then too."""
    if isinstance(above, FUNCTIONS) and below in above.body:
        block = _after_return(above.body, below)
        return [above] if len(block) == len(above.body) else block
    if isinstance(above, ast.If) and below is not above.test:
        if below in above.orelse:
            return _after_return(above.orelse, below)
        return [] if _always_runs_once(above) else _after_return(above.body, below)
    if isinstance(above, ast.Try):
        return _after_return(above.body, below) if above.handlers and below in above.body else []
    if isinstance(above, ast.ExceptHandler | ast.match_case) and below in above.body:
        return _after_return(above.body, below)
    is_arm = isinstance(above, ast.IfExp) and below is not above.test
    is_operand = isinstance(above, ast.BoolOp) and below is not above.values[0]
    return [below] if is_arm or is_operand else [above] if isinstance(above, ast.Lambda) else []


def _after_return(block: list[ast.stmt], below: ast.AST) -> list[ast.AST]:
    """Return the statements of a block after the last ``if ...: return`` before one of them."""
    start = next(index for index, each in enumerate(block) if each is below)
    while start and not _may_return(block[start - 1]):
        start -= 1
    return [*block[start:]]


def _may_return(statement: ast.stmt) -> bool:
    is_if = isinstance(statement, ast.If) and not statement.orelse
    return is_if and isinstance(statement.body[-1], ast.Return)  # type: ignore[attr-defined]


def _always_runs_once(branch: ast.If) -> bool:
    """Whether a branch runs once in any case: ``if self.graph is None: self.graph = ...``, ``__name__ == ...``."""
    test = branch.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    if getattr(test.left, "id", "") == "__name__":
        return True
    is_none = isinstance(test.ops[0], ast.Is) and getattr(test.comparators[0], "value", "") is None
    assigned = (
        target for each in ast.walk(branch) if isinstance(each, ast.Assign) for target in each.targets
    )
    return is_none and any(ast.unparse(each) == ast.unparse(test.left) for each in assigned)
