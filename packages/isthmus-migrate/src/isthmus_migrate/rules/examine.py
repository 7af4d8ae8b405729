"""Apply rules to a module."""

from collections.abc import Sequence

from isthmus_migrate.rules.rule import Rule, mentions
from isthmus_migrate.source.edits import Edit, without_covered
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module


def examine(module: Module, rules: Sequence[type[Rule]]) -> list[Finding]:
    """Return the findings of rules in a module, in the order of the text.

    A change inside text that another change replaces is a part of the latter, and has no finding of its own.

    Args:
        module: the module; its ``findings`` become those of the rules.
        rules: in order of execution.
    """
    for rule in rules:
        if mentions(module.text, rule):
            module.findings += rule().find(module)
    kept = set(without_covered(edit for finding in module.findings for edit in finding.edits))
    found = dict.fromkeys(module.findings)  # equal names of a test with mocks share a finding
    module.findings = [each for each in found if not each.edits or kept.intersection(each.edits)]
    return sorted(module.findings, key=lambda each: (each.line, each.column, each.code))


def edits_of(findings: Sequence[Finding]) -> list[Edit]:
    """Return the edits of findings."""
    return [edit for finding in findings for edit in finding.edits]
