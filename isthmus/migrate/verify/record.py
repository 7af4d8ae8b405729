"""What a process of a verified run leaves behind: figures as JSON, parameters beside them as arrays."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from isthmus._support.files import make_file, write_file

VARIABLE = "ISTHMUS_VERIFY"
_REQUEST = "request.json"


class Request(NamedTuple):
    """What a recorder is told.

    Attributes:
        steps: of optimizers after which the process ends; 0 lets it run to its end.
        seed: of every generator at the start.
        in_order: whether samples are loaded in the order of their data set, also where the program shuffles them.
        root: folder of the program.
        watched: file -> its lines that refer to CUDA, of which those that are executed are recorded.
    """

    steps: int
    seed: int
    in_order: bool
    root: str = ""
    watched: Mapping[str, list[int]] = MappingProxyType({})

    def write(self, folder: Path) -> None:
        """Leave it in the folder of the records."""
        write_file(folder / _REQUEST, json.dumps({**self._asdict(), "watched": dict(self.watched)}).encode())

    @classmethod
    def read(cls, folder: Path) -> Request:
        """What :meth:`write` left."""
        return cls(**json.loads((folder / _REQUEST).read_text()))


@dataclass
class Record:
    """What one process did.

    Attributes:
        rank: in the job.
        steps: of optimizers.
        ended: whether it was ended after the steps that were asked for.
        losses: values of what ``backward`` was called on; the norm of what is no scalar.
        low_precision: whether it computed in float16 or bfloat16.
        random: state of each generator at the end, as a digest.
        files: of the program that it imported or ran.
        executed: file -> lines of those that are watched.
        fallbacks: operator -> calls that went by way of the CPU; None where the device does not count them.
        step_seconds: between two steps, the median.
        host_peak: bytes of memory of the process at most.
        device_peak: bytes of memory of the device at most; None on the CPU.
        parameters: name -> values, of every optimizer that stepped, in their order.
    """

    rank: int = 0
    steps: int = 0
    ended: bool = False
    losses: list[float] = field(default_factory=list)
    low_precision: bool = False
    random: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    executed: dict[str, list[int]] = field(default_factory=dict)
    fallbacks: dict[str, int] | None = None
    step_seconds: float = 0.0
    host_peak: int = 0
    device_peak: int | None = None
    parameters: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    @property
    def trained(self) -> bool:
        """Whether it computed a gradient or took a step."""
        return bool(self.steps or self.losses)

    def write(self, folder: Path) -> None:
        """Leave it in a folder."""
        path = folder / f"{self.rank}-{os.getpid()}.json"
        make_file(arrays := path.with_suffix(".npz"))
        np.savez(arrays, allow_pickle=False, **self.parameters)
        facts = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)[:-1]}
        write_file(path, json.dumps(facts).encode())


def read(folder: Path) -> Sequence[Record]:
    """The records of a run's processes, by rank."""
    found = []
    for path in sorted(folder.glob("*-*.json"), key=lambda each: int(each.stem.partition("-")[2])):
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
            parameters = {name: arrays[name] for name in arrays.files}
        found.append(Record(**json.loads(path.read_text()), parameters=parameters))
    return sorted(found, key=lambda record: record.rank)
