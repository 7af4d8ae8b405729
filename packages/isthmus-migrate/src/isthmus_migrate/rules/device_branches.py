"""Tests for CUDA whose branch names a device that stays: both change, or both stay."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.cuda_branches import guarded_nodes
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.verdicts import Use, Verdict, place_of

_VALUES = (ast.IfExp, ast.Assign, ast.AnnAssign, ast.Return)


def find_decided(rule: Rule, module: Module, test: ast.expr, subject: str) -> Finding | None:
    """Return the finding of a test for CUDA that decides for a string which stays; None if it decides for none.

    Args:
        rule: of the finding.
        module: the module.
        test: the test.
        subject: of the finding.
    """
    found = list(_strings(module, test))
    for node, verdict in found:
        if not verdict.certain:
            message = f"decides for {module.code(node)} in line {_line(module, node)}, which is left"
            return rule.undecided(module, test, subject, message, "change both, if the string is a device")
    for node, verdict in found:
        if verdict.use is Use.WORD and isinstance(module.parents[node], _VALUES):
            message = f"decides for the word {module.code(node)} in line {_line(module, node)}"
            return rule.already_portable(module, test, subject, message, "stays a test for CUDA")
    return None


def _strings(module: Module, test: ast.expr) -> Iterator[tuple[ast.expr, Verdict]]:
    """Yield the strings that name CUDA in what runs only where a test is true, with their verdicts."""
    strings = module.around.flow.strings
    for part in guarded_nodes(module, test):
        for node in ast.walk(part):
            if isinstance(node, ast.expr) and not isinstance(module.parents[node], ast.Compare):
                verdict = strings.get(place_of(node))
                if verdict is not None:
                    yield node, verdict


def _line(module: Module, node: ast.expr) -> int:
    return module.place(node.lineno)[1]
