"""Read dumps."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import safetensors
import torch

from isthmus_diagnostics.accuracy.errors import AccuracyError
from isthmus_diagnostics.accuracy.statistics import Statistics
from isthmus_diagnostics.accuracy.writer import ABOUT, FORMAT, INDEX


class Place(NamedTuple):
    """The place of a call in the structure of a job, whatever device and wrappers run it."""

    step: int
    phase: str
    module: str
    visit: int


@dataclass(eq=False)
class Content:
    """A tensor of a dump.

    Attributes:
        number: in the rank's dump.
        dtype, shape: of the part that the rank holds.
        statistics: None if it was not measured.
        name: of a parameter or buffer, or "".
        placement: ``S(0)``, ``R``, ``P`` for each dimension of a device mesh; "" if unknown.
        whole: shape of all parts together, if it is placed.
        rank: the rank's dump, which reads the values.
        file: with the values, or "".
        writer: number of the call that wrote its memory, perhaps by another view; None if unknown.
        like: number of the first tensor with the same elements in the same memory; None if this is it.
        unwritten: whether a part of its memory was not yet written since it was allocated.
    """

    number: int
    dtype: str
    shape: tuple[int, ...]
    statistics: Statistics | None
    rank: "Rank" = field(repr=False)
    name: str = ""
    placement: str = ""
    whole: tuple[int, ...] = ()
    file: str = ""
    writer: int | None = None
    like: int | None = None
    unwritten: bool = False

    @property
    def values(self) -> torch.Tensor | None:
        """The tensor, if the dump has it."""
        return self.rank.values(self) if self.file else None

    def __str__(self) -> str:
        text = f"{self.dtype}{list(self.shape)}"
        if self.statistics is None:
            return text
        s = self.statistics
        text += f" min {s.min:.6g} max {s.max:.6g} mean {s.mean:.6g} norm {s.norm:.6g}"
        return text + (f" NaN {s.nans}" if s.nans else "") + (f" inf {s.infinities}" if s.infinities else "")


@dataclass(eq=False)
class Recorded:
    """A call of a dump.

    Attributes:
        number: in the rank's dump, in the order of the calls' beginnings.
        place: where it is.
        operator: ``aten::mm``, ``module``, ``optimizer::AdamW``, ``c10d::allreduce_``.
        line: of the program, or "".
        arguments: those that are no tensors.
        inputs, outputs: tensors by name.
        group: ranks of a collective.
        gradients: names of the inputs that require gradients.
        completed: number of the call before which the results of a collective were first used.
        rank: number of the rank.
    """

    number: int
    place: Place
    operator: str
    line: str
    library: str
    arguments: dict[str, Any]
    inputs: dict[str, Content]
    outputs: dict[str, Content]
    group: tuple[int, ...] = ()
    gradients: frozenset[str] = frozenset()
    completed: int = -1
    rank: int = 0

    @property
    def at(self) -> str:
        """The line of the program, and that of a library."""
        return (self.line or "unknown line") + (f" (in {self.library})" if self.library else "")

    def __str__(self) -> str:
        where = f" in {self.place.module}" if self.place.module else ""
        phase = "" if self.place.phase == "forward" else f" ({self.place.phase})"
        return f"{self.operator}{phase}{where} at {self.at}"


class Rank:
    """The dump of one rank.

    Args:
        folder: its folder.
        number: of the rank.
        about: what is known of the job.

    Attributes:
        contents: tensors by number.
        calls: in order.
        has_root: whether names of modules begin with the outermost one.
    """

    has_root = True

    def __init__(self, folder: Path, number: int, about: dict[str, Any]) -> None:
        self.folder, self.number, self.about = folder, number, about
        self.contents: dict[int, Content] = {}
        self.calls: list[Recorded] = []
        self._files: dict[str, Any] = {}

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a folder that :mod:`isthmus_diagnostics.accuracy.writer` has written. Raises AccuracyError."""
        try:
            about = json.loads((folder / ABOUT).read_text())
        except (OSError, ValueError) as error:
            raise AccuracyError(f"{folder / ABOUT}: cannot read the dump: {error}") from None
        if about.get("format") != FORMAT:
            raise AccuracyError(f"{folder}: not a dump of format {FORMAT}; write it with this version")
        rank = cls(folder, int(about["rank"]), about)
        rank._read()
        return rank

    def _read(self) -> None:
        calls: dict[int, Recorded] = {}
        latest = -1
        for line in _lines(self.folder / INDEX):
            if "tensor" in line:
                content = self._content(line)
                self.contents[content.number] = content
            elif "call" in line:
                latest = line["call"]
                calls[latest] = self._call(line)
            elif line.get("completes") in calls:
                collective = calls[line["completes"]]
                collective.outputs |= self._tensors(line["outputs"])
                collective.completed = latest + 1
        self.calls = [calls[number] for number in sorted(calls)]

    def _content(self, line: dict[str, Any]) -> Content:
        values = line.get("values")
        statistics = Statistics(*values)._replace(hash=line.get("hash", "")) if values else None
        if "like" in line and not values:
            statistics = self.contents[line["like"]].statistics
        return Content(
            line["tensor"], line["dtype"], tuple(line["shape"]), statistics, self,
            line.get("name", ""), line.get("placement", ""),
            tuple(line.get("whole", ())), line.get("file", ""),
            line.get("writer"), line.get("like"), line.get("unwritten", False),
        )  # fmt: skip

    def _call(self, line: dict[str, Any]) -> Recorded:
        kind = {"class": line["class"]} if "class" in line else {}
        return Recorded(
            line["call"],
            Place(line["step"], line["phase"], line["module"], line["visit"]),
            line["operator"],
            line.get("line", ""),
            line.get("library", ""),
            line.get("arguments", kind),
            self._tensors(line.get("inputs", {})),
            self._tensors(line.get("outputs", {})),
            tuple(line.get("group", ())),
            frozenset(line.get("gradients", ())),
            rank=self.number,
        )

    def _tensors(self, numbers: dict[str, int]) -> dict[str, Content]:
        return {name: self.contents[number] for name, number in numbers.items() if number in self.contents}

    def values(self, content: Content) -> torch.Tensor:
        """Read the values of a tensor."""
        if content.file not in self._files:
            self._files[content.file] = safetensors.safe_open(str(self.folder / content.file), "pt")
        found: torch.Tensor = self._files[content.file].get_tensor(str(content.number))
        return torch.view_as_complex(found) if content.dtype.startswith("complex") else found

    @cached_property
    def producers(self) -> dict[int, list[Recorded]]:
        """The calls that return each tensor, by its number: that which computes it, then those that pass it on."""
        numbered = {call.number: call for call in self.calls}
        found: dict[int, list[Recorded]] = {
            content.number: [numbered[content.writer]]
            for content in self.contents.values()
            if content.writer in numbered
        }
        for call in self.calls:
            if call.operator != "module":
                for content in call.outputs.values():
                    found.setdefault(content.number, []).append(call)
        for number, content in self.contents.items():
            own = found.get(number, [])
            # A view of the same shape returns the tensor that it takes.
            if content.like in found and (not own or content in own[0].inputs.values()):
                found[number] = found[content.like] + own
        return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of an index; the last one of a crashed job may be incomplete."""
    try:
        text = path.read_text()
    except OSError as error:
        raise AccuracyError(f"{path}: cannot read the dump: {error}") from None
    lines = text.splitlines()
    for number, line in enumerate(lines):
        try:
            yield json.loads(line)
        except ValueError:
            if number + 1 < len(lines):
                raise AccuracyError(f"{path}:{number + 1}: not a line of JSON; dump again") from None
