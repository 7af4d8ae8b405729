"""Stages of a conversion: rules that change a source as a whole run first, each on the result of the one before."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from isthmus_migrate.rules.examine import edits_of, examine
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source import edits
from isthmus_migrate.source.edits import Edit, Lines, without_covered
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.notebooks import parse
from isthmus_migrate.source.verdicts import Flow, Place


class Staged(NamedTuple):
    """A module after the stages.

    Attributes:
        module: the module; its findings have places in the original source.
        findings: of the stages.
        needs: empty edits, with what the new text uses and lacks.
    """

    module: Module
    findings: list[Finding]
    needs: list[Edit]


def run(module: Module, rules: Sequence[type[Rule]]) -> Staged:
    """Apply the stages among rules.

    Args:
        module: the original module.
        rules: in order of execution; those that are no stages are ignored.
    """
    findings: list[Finding] = []
    needs: frozenset[str] = frozenset()
    for rule in rules:
        if not rule.is_stage:
            continue
        found = examine(module, [rule])
        findings += found
        wanted = edits_of(found)
        if wanted:
            needs = needs.union(*(each.needs for each in wanted))
            module = _apply_edits(module, wanted)
        module.findings = []
    return Staged(module, findings, [Edit(place, place, "", needs=needs) for place in _uses(module, needs)])


def _apply_edits(module: Module, wanted: list[Edit]) -> Module:
    """Return a module with edits made, and the verdicts on its places where these are now."""
    text = edits.apply(module.text, wanted)
    places = [module.place(line) for line in _lines(module.text, text)]
    around = module.around._replace(flow=_move_verdicts(module, text, wanted))
    new = Module(module.source, parse(text), text=text, name=module.name, around=around, places=places)
    new.device = module.device  # the edits use it
    return new


def _move_verdicts(module: Module, text: str, wanted: list[Edit]) -> Flow:
    """Return the data flow's verdicts for a new text."""
    old, new = Lines(module.text), Lines(text)
    made = without_covered(wanted)

    def shift(offset: int, before: int) -> int:
        """Return an offset in the new text; ``before`` is 1 to stay before what is inserted there."""
        earlier = (each for each in made if each.end + (before if each.start == each.end else 0) <= offset)
        return offset + sum(len(each.text) - each.end + each.start for each in earlier)

    def moved(verdicts: Mapping[Place, Any]) -> dict[Place, Any]:
        found: dict[Place, Any] = {}
        for place, verdict in verdicts.items():
            start, end = old.offset(*place[:2]), old.offset(*place[2:])
            last = new.position(shift(end, 1))
            for before in (1, 0):  # text inserted there may be around the expression, or in it
                found[*new.position(shift(start, before)), *last] = verdict
        return found

    flow = module.around.flow
    strings, values, classes = moved(flow.strings), moved(flow.values), moved(flow.classes)
    return flow._replace(strings=strings, values=values, classes=classes, recorded=moved(flow.recorded))


def _lines(text: str, new: str) -> list[int]:
    """Return for each line of a new text its line in the old one."""
    old_lines, new_lines = text.splitlines(), new.splitlines()
    lines: list[int] = []
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, False)
    for _, start, end, new_start, new_end in matcher.get_opcodes():
        last = max(start, end - 1)
        lines += [min(start + offset, last) + 1 for offset in range(new_end - new_start)]
    return [*lines, len(old_lines)]


def _uses(module: Module, needs: frozenset[str]) -> list[int]:
    """Return where the device constant is used first, else the end of the text; nothing without needs."""
    uses = [module.start(each) for each in module.of(ast.Name) if each.id == module.device]
    return [min(uses, default=len(module.text))] if needs else []
