"""The record of a run decides what the source does not show: it turns uncertain verdicts into certain ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from isthmus_common import text
from isthmus_migrate.source import parse
from isthmus_migrate.source.files import File, Source, read
from isthmus_migrate.source.surroundings import Surroundings
from isthmus_migrate.source.verdicts import WORD, Flow, Place, Use, Verdict, place_of
from isthmus_migrate.trace import evidence as records
from isthmus_migrate.trace.evidence import Evidence, EvidenceError

_KINDS: tuple[records.Kind, ...] = ("string", "format")
_NEVER = "and was never a device"


class Checked(NamedTuple):
    """A record that was compared with the sources.

    Attributes:
        evidence: without the files that have changed.
        refused: the reasons, one line per file that has changed, or for the whole record.
    """

    evidence: Evidence
    refused: Sequence[str]


def check(evidence: Evidence, files: Sequence[File]) -> Checked:
    """Compare a record with the sources of a project."""
    kept: dict[str, records.File] = {}
    refused: list[str] = []
    for file in files:
        path = file.path.resolve()
        try:
            found = evidence.file(path, path.read_bytes()) if path.is_file() else None
        except EvidenceError as error:
            refused.append(str(error))
        else:
            if found is not None:
                kept[path.as_posix()] = found
    if not kept and not refused:
        refused.append(f"the record has none of these files; it is of a run in {evidence.root}")
    return Checked(
        replace(evidence, root="/", files={name[1:]: each for name, each in kept.items()}), refused
    )


def add_verdicts(file: File, around: Surroundings, evidence: Evidence) -> Surroundings:
    """Return the surroundings of a file with the verdicts of a record.

    Args:
        file: a Python source.
        around: its surroundings by the data flow.
        evidence: a record whose files are those of the project, see :func:`check`.
    """
    recorded = evidence.files.get(file.path.resolve().as_posix()[1:])
    source = read(file) if recorded else None
    if recorded is None or not isinstance(source, Source):
        return around
    module, _ = parse.parse(source)
    if module is None:
        return around
    return around._replace(flow=_Record(recorded, evidence, module.text).flow(module.tree, around))


class _Record:
    """The record of one file, with the positions of its source.

    Args:
        file: the recorded places.
        evidence: the whole record.
        text: the source.
    """

    def __init__(self, file: records.File, evidence: Evidence, text: str) -> None:
        self._lines = text.split("\n")
        # Text of unknown origin may come from any place; a run that failed ends before some uses.
        self._is_complete = evidence.status == 0 and not evidence.untraced
        self._places = {(self._place(each), each.kind): each for each in file.places}

    def _place(self, each: records.Place) -> Place:
        """Return the position as ast counts it: lines from 1, columns from 0 in bytes."""
        start, end = (each.line, each.column), (each.end_line, each.end_column)
        (line, column), (end_line, end_column) = (
            (number, len(self._lines[number - 1][: position - 1].encode()))
            for number, position in (start, end)
        )
        return line, column, end_line, end_column

    def flow(self, tree: ast.Module, around: Surroundings) -> Flow:
        """Return the data flow's verdicts, with those of the record where it is not certain."""
        flow = around.flow
        words: dict[Place, str] = {}
        strings = dict(flow.strings)
        for place, verdict in flow.strings.items():
            if (found := self._string(place)) and _decides(found, verdict):
                strings[place], words[place] = found, found.why
        values, classes = dict(flow.values), dict(flow.classes)
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                operands = [node.left, *node.comparators]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                operands = [node.func.value]
                owners = (
                    self._owners(place_of(node), around.project.own_cuda)
                    if node.func.attr == "cuda"
                    else None
                )
                if owners and owners[0]:
                    classes[place_of(node.func.value)], words[place_of(node)] = owners
            else:
                continue
            for place, verdict in self._operands(node, operands):
                if _decides(verdict, flow.values.get(place, WORD)):
                    values[place] = verdict
                    if (
                        verdict.use is not Use.WORD or place_of(node) not in words
                    ):  # a device outweighs a word
                        words[place_of(node)] = verdict.why
        return flow._replace(strings=strings, values=values, classes=classes, recorded=words)

    def _string(self, place: Place) -> Verdict | None:
        """Return what a string was; None if the record does not tell."""
        found = next((self._places[place, kind] for kind in _KINDS if (place, kind) in self._places), None)
        if found is None:
            return None
        for use, roles in _ROLES.items():
            for role in roles:
                for function, count in found.sinks.get(role, {}).items():
                    return Verdict(use, True, f"recorded run: reached {function} {text.count(count, 'time')}")
        if met := [role for role in found.compared if role in _ROLES[Use.DEVICE]]:
            return Verdict(Use.DEVICE, True, f"recorded run: compared with a {met[0]}")
        if found.executed and not found.is_device and self._is_complete:
            return Verdict(Use.WORD, True, _say_never_executed(found.executed))
        return None

    def _operands(self, node: ast.expr, operands: Sequence[ast.expr]) -> Iterator[tuple[Place, Verdict]]:
        """Yield the operands of a comparison, or of ``startswith``, that the record tells about."""
        found = self._places.get((place_of(node), "comparison"))
        if found is None:
            return
        for operand, side in zip(operands, found.sides, strict=False):
            if isinstance(operand, ast.Constant):
                continue
            for use, roles in _ROLES.items():
                if role := next((each for each in side.roles if each in roles), None):
                    said = f"recorded run: was a {role} {text.count(found.executed, 'time')}"
                    yield place_of(operand), Verdict(use, True, said)
                    break
            else:
                if found.executed and not side.roles and self._is_complete:
                    yield place_of(operand), Verdict(Use.WORD, True, _say_never_executed(found.executed))

    def _owners(self, place: Place, own: frozenset[str]) -> tuple[frozenset[str], str] | None:
        """Return the classes whose method ``cuda`` a call ran, and the words for it; None if it ran both kinds."""
        found = self._places.get((place, "call"))
        if found is None or not found.members:
            return None
        said = f"recorded run: called {', '.join(sorted(found.members))} {text.count(found.executed, 'time')}"
        if all(name.startswith("torch.") for name in found.members):
            return frozenset(name.removesuffix(".cuda") for name in found.members), said
        names = {name.split(".")[-2] for name in found.members}
        if any(name.startswith("torch.") for name in found.members):
            return None
        return frozenset(each for each in own if each.rpartition(".")[2] in names), said


_ROLES: dict[Use, tuple[records.Role, ...]] = {
    Use.DEVICE: ("device", "device type"),
    Use.BACKEND: ("backend",),
}


def _decides(found: Verdict, verdict: Verdict) -> bool:
    """Whether what a run showed replaces what the source shows: a use that the source does not show, or a doubt."""
    return not verdict.certain or (verdict.use is Use.WORD and found.use is not Use.WORD)


def _say_never_executed(executed: int) -> str:
    return f"recorded run: was executed {text.count(executed, 'time')}, {_NEVER}"
