"""The record of `isthmus migrate trace`: its format, version 1, and the look-up in it.

JSON::

    {"version": 1, "script": "train.py", "arguments": ["--lr", "0.1"], "torch": "2.13.0", "status": 0,
     "root": "/home/me/project", "untraced": {"torch.zeros('cuda:0') at /home/me/project/train.py:9": 1},
     "files": {"train.py": {"sha256": "...", "places": [
         {"kind": "string", "line": 3, "column": 39, "end_line": 3, "end_column": 45, "source": "\\"cuda\\"",
          "executed": 1, "sinks": {"device": {"torch.zeros": 2}}, "compared": ["device type"],
          "uses": {"print": 1}, "values": ["cuda"], "types": {}, "members": {}, "sides": []}]}}}

A place of kind ``comparison`` has one entry of ``sides`` per operand: ``{"types": {"str": 2}, "values": ["cuda"],
"roles": ["device type"]}``. The keys of ``sinks``, and ``compared`` and ``roles``, are of :data:`ROLES`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

VERSION = 1

Kind = Literal["string", "format", "comparison", "call", "attribute"]
Role = Literal["device", "device type", "backend", "tensor type", "dispatch key"]
ROLES: tuple[Role, ...] = get_args(Role)


class EvidenceError(ValueError):
    """The record cannot be read, or does not fit a source. The message is one line."""


@dataclass(frozen=True)
class Operand:
    """One side of a comparison.

    Attributes:
        types: type -> count.
        values: some of the values, as text.
        roles: what the values were in fact; empty for other text.
    """

    types: Mapping[str, int]
    values: tuple[str, ...]
    roles: tuple[Role, ...]


@dataclass(frozen=True)
class Place:
    """An expression that was executed.

    Attributes:
        kind: ``string`` is a literal, ``format`` an f-string or an expression with ``+``, ``%``, format() or join().
        line: first line, from 1.
        column: first column, from 1, in characters.
        end_line: last line.
        end_column: column after the last character.
        source: its source text.
        executed: how often it was executed.
        sinks: role -> function of PyTorch that received the text in this role -> count.
        compared: roles of the values that the text was compared with.
        uses: other uses of the text -> count: ``print``, ``open``, ``exec``, ``type``, ``getattr of module torch``.
        values: some of its values: texts that reached sinks, results of a format or of ``x.is_cuda``.
        types: type or module of the receiver of a call or attribute -> count.
        members: what was called or read, by the class or module that defines it -> count: ``torch.Tensor.cuda`` or
            ``__main__.Batch.cuda``, the project's own.
        sides: operands of a comparison, from left to right; of a ``case`` the subject and the pattern.
    """

    kind: Kind
    line: int
    column: int
    end_line: int
    end_column: int
    source: str
    executed: int
    sinks: Mapping[Role, Mapping[str, int]] = field(default_factory=dict)
    compared: tuple[Role, ...] = ()
    uses: Mapping[str, int] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    types: Mapping[str, int] = field(default_factory=dict)
    members: Mapping[str, int] = field(default_factory=dict)
    sides: tuple[Operand, ...] = ()

    @property
    def is_device(self) -> bool:
        """Whether the text had a role or was compared with one, an operand had one, or the member is PyTorch's.

        A call of PyTorch's ``to`` does not count by itself: its argument may be a dtype.
        """
        named = any(name.startswith("torch.") and not name.endswith(".to") for name in self.members)
        return bool(self.sinks or self.compared or named or any(side.roles for side in self.sides))


@dataclass(frozen=True)
class File:
    """The places of a source file.

    Attributes:
        sha256: of its bytes.
        places: sorted by position.
    """

    sha256: str
    places: tuple[Place, ...]

    def at(self, line: int, column: int, kind: Kind | None = None) -> Place | None:
        """Return the place that starts at a position: the shortest of those of the kind; None if there is none."""
        found = [
            each
            for each in self.places
            if (each.line, each.column) == (line, column) and kind in (None, each.kind)
        ]
        return min(found, key=lambda each: (each.end_line, each.end_column), default=None)


@dataclass(frozen=True)
class Evidence:
    """A record.

    Attributes:
        script: the program: a script, ``-m module``, or a command such as torchrun.
        arguments: its arguments.
        torch: version of PyTorch.
        status: exit status of the script; not 0: later parts of it may not have been executed.
        root: absolute path of the project.
        files: path relative to the root, with ``/`` -> places.
        untraced: calls of PyTorch with a device whose origin is unknown -> count: the text was read from a file, made
            by a library, or passed through C code. If it is empty, an executed string without a role is not a device.
    """

    script: str
    arguments: tuple[str, ...]
    torch: str
    status: int
    root: str
    files: Mapping[str, File]
    untraced: Mapping[str, int] = field(default_factory=dict)

    def file(self, path: str | Path, source: bytes) -> File | None:
        """Return the record of a file; None if the file was not executed.

        Args:
            path: relative to the root, or absolute.
            source: its bytes.

        Raises:
            EvidenceError: the source has changed since the run.
        """
        name = self._name(path)
        found = self.files.get(name)
        if found is not None and found.sha256 != hashlib.sha256(source).hexdigest():
            raise EvidenceError(f"{name}: changed since it was traced; run `isthmus migrate trace` again")
        return found

    def at(self, path: str | Path, line: int, column: int, kind: Kind | None = None) -> Place | None:
        """Return the place at a position of a file, whose source is not checked; None if there is none."""
        found = self.files.get(self._name(path))
        return found.at(line, column, kind) if found else None

    def _name(self, path: str | Path) -> str:
        path = Path(path)
        root = Path(self.root)
        return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()

    def text(self) -> str:
        """Return the record as JSON."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)


def load(path: Path) -> Evidence:
    """Read a record.

    Raises:
        EvidenceError: the file cannot be read, is not a record, or has another version.
    """
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise EvidenceError(f"{path}: not a record of `isthmus migrate trace`") from None
    version = data.pop("version", None) if isinstance(data, dict) else None
    if version != VERSION:
        raise EvidenceError(
            f"{path}: version {version}, expected {VERSION}; run `isthmus migrate trace` again"
        )
    try:
        files = {
            name: File(each["sha256"], tuple(map(_place, each["places"])))
            for name, each in data["files"].items()
        }
        return Evidence(**{**data, "arguments": tuple(data["arguments"]), "files": files})
    except (KeyError, TypeError, AttributeError):
        raise EvidenceError(f"{path}: incomplete; run `isthmus migrate trace` again") from None


def _place(data: dict[str, Any]) -> Place:
    sides = [Operand(each["types"], tuple(each["values"]), tuple(each["roles"])) for each in data["sides"]]
    return Place(
        **{
            **data,
            "compared": tuple(data["compared"]),
            "values": tuple(data["values"]),
            "sides": tuple(sides),
        }
    )
