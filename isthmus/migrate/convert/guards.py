"""Guards: an ``if`` around statements that apply only to some devices."""

from collections.abc import Mapping
from typing import TypeVar

import libcst as cst

Block = TypeVar("Block", cst.IndentedBlock, cst.Module)


def wrap(block: Block, tests: Mapping[cst.CSTNode, str]) -> Block:
    """Put statements of a block under their tests; adjacent ones with the same test share an ``if``."""
    if not any(statement in tests for statement in block.body):
        return block
    body: list[cst.BaseStatement | cst.BaseSmallStatement] = []
    before = ""
    for statement in block.body:
        test = tests.get(statement, "")
        if not test or not isinstance(statement, cst.SimpleStatementLine):
            body.append(statement)
        elif test == before and not statement.leading_lines and isinstance(body[-1], cst.If):
            body[-1] = _and(body[-1], statement)
        else:
            body.append(_if(test, statement))
        before = test
    return block.with_changes(body=body)


def _if(test: str, statement: cst.SimpleStatementLine) -> cst.If:
    inner = cst.IndentedBlock([statement.with_changes(leading_lines=[])])
    return cst.If(cst.parse_expression(test), inner, leading_lines=statement.leading_lines)


def _and(guarded: cst.If, statement: cst.SimpleStatementLine) -> cst.If:
    body = guarded.body.with_changes(body=[*guarded.body.body, statement])
    return guarded.with_changes(body=body)
