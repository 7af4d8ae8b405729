"""Merges the parts of all processes into one record."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus_migrate.trace.evidence import File, Operand, Place
from isthmus_migrate.trace.places import MOST_VALUES, Span


@dataclass
class _Side:
    types: dict[str, int] = field(default_factory=dict)
    values: dict[str, None] = field(default_factory=dict)
    origins: set[str] = field(default_factory=set)


@dataclass
class _Merged:
    """The facts of one place from all processes; attributes as of places.Place."""

    facts: dict[str, Any]
    executed: int = 0
    values: dict[str, None] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    sinks: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    sides: list[_Side] = field(default_factory=list)
    met: set[str] = field(default_factory=set)

    def add(self, part: dict[str, Any]) -> None:
        """Add the facts of a process."""
        self.executed += part["executed"]
        self.values |= dict.fromkeys(part["values"])
        self.met |= set(part["met"])
        _sum(self.types, part["types"])
        _sum(self.members, part["members"])
        _sum(self.uses, part["uses"])
        for role, name, count in part["sinks"]:
            _sum(self.sinks[role], {name: count})
        self.sides += [_Side() for _ in part["sides"][len(self.sides) :]]
        for side, found in zip(self.sides, part["sides"], strict=True):
            _sum(side.types, found["types"])
            side.values |= dict.fromkeys(found["values"])
            side.origins |= set(found["origins"])

    def roles(self) -> set[str]:
        """Return what the text of this place was."""
        return {role for role in (self.facts["role"], *self.sinks) if role}


def merge(folder: Path, root: Path) -> tuple[dict[str, File], dict[str, int]]:
    """Return the files of a record, by path relative to the root, and the untraced calls, from a folder of parts."""
    places: dict[str, _Merged] = {}
    digests: dict[str, str] = {}
    untraced: dict[str, int] = {}
    for path in sorted(folder.glob("*.json")):
        part = json.loads(path.read_bytes())
        digests |= part["digests"]
        for name, text, caller, count in part["untraced"]:
            _sum(untraced, {f"{name}({text!r}) at {caller}": count})
        for found in part["places"]:
            places.setdefault(found["key"], _Merged(found)).add(found)
    compared = _compared_roles(places)
    files: defaultdict[str, list[Place]] = defaultdict(list)
    for key, each in places.items():
        if each.facts["kind"] != "external":
            files[each.facts["path"]].append(_place(each, compared[key], places))
    named = {
        Path(os.path.relpath(path, root)).as_posix(): File(digests[path], tuple(sorted(found, key=_position)))
        for path, found in sorted(files.items())
    }
    return named, untraced


def _position(place: Place) -> tuple[int, int, int, int, str]:
    return place.line, place.column, place.end_line, place.end_column, place.kind


def _sum(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def _side_roles(side: _Side, places: dict[str, _Merged]) -> set[str]:
    found: set[str] = {"device"} if "torch.device" in side.types else set()
    return found.union(*(places[key].roles() for key in side.origins if key in places))


def _compared_roles(places: dict[str, _Merged]) -> dict[str, set[str]]:
    """Return for each place the roles of what its text was compared with."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for key, each in places.items():
        found[key].update(*(places[other].roles() for other in each.met if other in places))
        for number, side in enumerate(each.sides):
            others = [each.sides[other] for other in range(len(each.sides)) if other != number]
            roles = {role for other in others for role in _side_roles(other, places)}
            for origin in side.origins:
                found[origin] |= roles
    return found


def _place(merged: _Merged, compared: set[str], places: dict[str, _Merged]) -> Place:
    facts = merged.facts
    return Place(
        facts["kind"],
        **dict(zip(Span._fields, facts["span"], strict=True)),
        source=facts["source"],
        executed=merged.executed,
        sinks=dict(merged.sinks),  # type: ignore[arg-type]
        compared=tuple(sorted(compared)),  # type: ignore[arg-type]
        uses=merged.uses,
        values=_first_values(merged.values),
        types=merged.types,
        members=merged.members,
        sides=tuple(
            Operand(side.types, _first_values(side.values), tuple(sorted(_side_roles(side, places))))  # type: ignore[arg-type]
            for side in merged.sides
        ),
    )


def _first_values(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)[:MOST_VALUES]
