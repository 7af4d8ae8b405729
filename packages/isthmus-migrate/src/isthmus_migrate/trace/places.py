"""Places in the source of a traced process, and the facts recorded for each."""

import json
import math
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from isthmus_common.files import write_file

MOST_VALUES = 8
LONGEST_VALUE = 80
_INTERVAL = 1.0  # seconds between two writes at least, and the part of the time that is not spent in them
_SHARE = 50
_ATTEMPTS = 10

# Roles of a value. A place that produces one is a source; a place whose text reaches one has a sink.
DEVICE = "device"
DEVICE_TYPE = "device type"
BACKEND = "backend"
TENSOR_TYPE = "tensor type"
DISPATCH_KEY = "dispatch key"


class Span(NamedTuple):
    """Position of an expression: lines and columns from 1, columns in characters, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


def add_count(counts: dict[Any, int], key: Any) -> None:
    """Add 1 to a count."""
    counts[key] = counts.get(key, 0) + 1


def add_shortened(values: dict[str, None], value: str) -> None:
    """Add a value, shortened, unless there are enough."""
    if len(values) < MOST_VALUES:
        values[value[:LONGEST_VALUE]] = None


@dataclass(slots=True)
class Side:
    """One operand of a comparison.

    Attributes:
        types: type -> count.
        values: different values, as text.
        origins: places of the strings seen.
        known: (origins, hash) of traced strings that have been recorded.
    """

    types: dict[type, int] = field(default_factory=dict)
    values: dict[str, None] = field(default_factory=dict)
    origins: set["Place"] = field(default_factory=set)
    known: set[tuple[frozenset["Place"], int]] = field(default_factory=set)


class Owner(NamedTuple):
    """The meaning of a call or attribute on one type of receiver.

    Attributes:
        receiver: name of the type or module.
        member: what was called or read, by the class or module that defines it: ``torch.Tensor.cuda``; "" if absent.
    """

    receiver: str
    member: str


@dataclass(slots=True, eq=False)
class Place:
    """An expression in a source file, or an origin outside of all files (``path`` is then ""; ``kind`` "external").

    Attributes:
        path: absolute path of the file.
        span: position.
        kind: string, format, comparison, call, attribute or external.
        source: its source text.
        name: attribute or function name, if any.
        role: role of the value it produces, such as "device type" for ``device.type``; "".
        strong: whether its text names a device, so that text made of it is followed.
        text: value of a string; traced text once it has been executed.
        executed: how often it was executed.
        notable: whether the comparison, call or attribute involved a device.
        values: different values.
        types: type or module of the receiver -> count.
        members: what a call called or an attribute was, by the class or module that defines it -> count.
        sinks: (role, function) that received a string of this place -> count.
        uses: other use -> count.
        sides: operands of a comparison.
        met: places whose strings were compared with a string of this place.
        last: type or module of the last receiver.
        own: the set of this place.
        owners: type or module of a receiver -> how it is counted.
    """

    path: str
    span: Span
    kind: str
    source: str = ""
    name: str = ""
    role: str = ""
    strong: bool = True
    text: str = ""
    executed: int = 0
    notable: bool = False
    values: dict[str, None] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    sinks: dict[tuple[str, str], int] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    sides: list[Side] = field(default_factory=list)
    met: set["Place"] = field(default_factory=set)
    last: Any = None
    own: frozenset["Place"] = frozenset()
    owners: dict[Any, "Owner"] = field(default_factory=dict)

    def key(self) -> str:
        """Return the identity of the place in all processes."""
        where = self.source if self.kind == "external" else ":".join(map(str, self.span))
        return f"{self.path}:{where}:{self.kind}"

    def alone(self) -> frozenset["Place"]:
        """Return the set of this place, the same object each time."""
        if not self.own:
            self.own = frozenset((self,))
        return self.own

    def forget(self) -> None:
        """Clear what has been recorded."""
        self.executed, self.notable = 0, False
        for counts in (self.types, self.members, self.sinks, self.uses, self.values, self.met):
            counts.clear()
        self.sides = [Side() for _ in self.sides]

    def part(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return {
            "key": self.key(),
            "path": self.path,
            "span": self.span,
            "kind": self.kind,
            "source": self.source,
            "role": self.role,
            "executed": self.executed,
            "values": list(self.values),
            "types": self.types,
            "members": self.members,
            "sinks": [[*name, count] for name, count in self.sinks.items()],
            "uses": self.uses,
            "sides": [
                {
                    "types": {type_name(kind): count for kind, count in side.types.items()},
                    "values": list(side.values),
                    "origins": [each.key() for each in side.origins],
                }
                for side in self.sides
            ],
            "met": [each.key() for each in self.met],
        }


def type_name(kind: type) -> str:
    """Return the name of a type: ``str``, ``torch.device``, ``__main__.Boxes``."""
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


@dataclass
class Registry:
    """All places of this process.

    Attributes:
        places: by the index in instrumented source.
        digests: path -> SHA-256 of the source, for each instrumented file.
        untraced: (function, text, caller) of a device whose text came without origins -> count.
        folder: where the parts of all processes are written; None: nowhere.
    """

    places: list[Place] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    untraced: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _due: float = 0.0
    _lock: Any = field(default_factory=threading.RLock)
    _elsewhere: dict[tuple[Any, ...], Place] = field(default_factory=dict)

    def add(self, place: Place) -> int:
        """Add a place; return its index."""
        self.places.append(place)
        return len(self.places) - 1

    def outside(self, source: str) -> Place:
        """Return the place of an origin outside of all files, such as the command line."""
        return self.elsewhere("", Span(0, 0, 0, 0), "external", source)

    def elsewhere(self, path: str, span: Span, kind: str, source: str) -> Place:
        """Return a place that is not in instrumented source of this process."""
        known = path, span, kind, source
        if known not in self._elsewhere:
            self._elsewhere[known] = Place(path, span, kind, source)
            self.places.append(self._elsewhere[known])
        return self._elsewhere[known]

    def forget(self) -> None:
        """Clear what has been recorded: in a forked process, whose parent keeps its own record."""
        self._lock = threading.RLock()  # another thread of the parent may hold it
        self._due = 0.0
        self.untraced.clear()
        for place in self.places:
            place.forget()

    def write_if_due(self) -> None:
        """Write once in a while, so that a process that is killed leaves a part."""
        now = time.monotonic()
        if now >= self._due:
            self._due = math.inf  # in other threads
            self.write()
            self._due = time.monotonic() + max(_INTERVAL, _SHARE * (time.monotonic() - now))

    def write(self) -> None:
        """Write this process's part of the record, if a place of interest was executed."""
        with self._lock:
            data = self._facts_as_json()
            if self.folder is None or data is None:
                return
            try:
                write_file(self.folder / f"{os.getpid()}.json", data)
            except OSError as error:
                cause = f"{error.filename}: {error.strerror}"
                print(f"isthmus: {cause}: this process is not recorded", file=sys.stderr)

    def _facts_as_json(self) -> bytes | None:
        """Return the facts as JSON; None if there are none, or while other threads add to them."""
        for _ in range(_ATTEMPTS):
            with suppress(RuntimeError):  # a dict changed size during iteration
                parts = [place.part() for place in list(self.places) if _is_of_interest(place)]
                untraced = [[*key, count] for key, count in self.untraced.items()]
                facts = {"digests": self.digests, "places": parts, "untraced": untraced}
                return json.dumps(facts).encode() if parts or untraced else None
        return None


def _is_of_interest(place: Place) -> bool:
    if place.kind == "external":
        return bool(place.sinks or place.role)
    if place.kind in ("comparison", "call", "attribute"):
        return place.notable
    return bool(place.executed or place.sinks or place.uses or place.met) and (place.strong or place.notable)


REGISTRY = Registry()
