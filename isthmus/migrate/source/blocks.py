"""Blocks of statements that run together."""

import ast

from isthmus.migrate.source.module import Module
from isthmus.migrate.source.names import FUNCTIONS


def runs_with(module: Module, node: ast.AST) -> list[ast.AST]:
    """Return what runs whenever a node runs: its function, or a branch of it; [] for the top level of the module."""
    below = node
    for above in module.enclosing(node):
        if block := _block(above, below):
            return block
        below = above
    return []


def earlier(above: ast.AST, node: ast.AST) -> list[ast.stmt]:
    """Return the statements before a node in a block of its parent; [] if it is no statement of one."""
    block = _statements(above, node)
    return block[: block.index(node)] if block else []  # type: ignore[arg-type]


def following(module: Module, statement: ast.stmt) -> list[ast.stmt]:
    """Return the statements after one in its block."""
    block = _statements(module.parents[statement], statement)
    return block[block.index(statement) + 1 :] if block else []


def _statements(above: ast.AST, node: ast.AST) -> list[ast.stmt]:
    blocks = (getattr(above, name, None) for name in ("body", "orelse", "finalbody"))
    return next((each for each in blocks if isinstance(each, list) and node in each), [])


def _block(above: ast.AST, below: ast.AST) -> list[ast.AST]:
    """Return the part of a node's parent that runs if the node does; [] if the parent runs then too."""
    if isinstance(above, FUNCTIONS) and below in above.body:
        block = _after_return(above.body, below)
        return [above] if len(block) == len(above.body) else block
    if isinstance(above, ast.If) and below is not above.test:
        if below in above.orelse:
            return _after_return(above.orelse, below)
        return [] if _always(above) else _after_return(above.body, below)
    if isinstance(above, ast.Try):
        return _after_return(above.body, below) if above.handlers and below in above.body else []
    if isinstance(above, ast.ExceptHandler | ast.match_case) and below in above.body:
        return _after_return(above.body, below)
    is_arm = isinstance(above, ast.IfExp) and below is not above.test
    is_operand = isinstance(above, ast.BoolOp) and below is not above.values[0]
    return [below] if is_arm or is_operand else [above] if isinstance(above, ast.Lambda) else []


def _after_return(block: list[ast.stmt], below: ast.AST) -> list[ast.AST]:
    """Return the statements of a block after the last ``if ...: return`` before one of them."""
    place = next(index for index, each in enumerate(block) if each is below)
    start = 0
    for index, each in enumerate(block[:place]):
        if isinstance(each, ast.If) and not each.orelse and isinstance(each.body[-1], ast.Return):
            start = index + 1
    return [*block[start:]]


def _always(branch: ast.If) -> bool:
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
