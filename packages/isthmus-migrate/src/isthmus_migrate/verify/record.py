"""Records of the processes of a verified run: figures as JSON, parameters as arrays."""

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

from isthmus_common.files import make_file, write_file

VARIABLE = "ISTHMUS_VERIFY"
_REQUEST = "request.json"


class Request(NamedTuple):
    """The request to a recorder.

    Attributes:
        steps: optimizer steps after which the process exits; 0 means no limit.
        seed: seed of all generators.
        in_order: load samples in the order of their data set, even if the program shuffles them.
        noise: units in the last place by which the results of rounding operators are off; 0 for none.
        root: folder of the program.
        watched: file -> lines that refer to CUDA; executed ones are recorded.
    """

    steps: int
    seed: int
    in_order: bool
    noise: int = 0
    root: str = ""
    watched: Mapping[str, list[int]] = MappingProxyType({})

    def write(self, folder: Path) -> None:
        """Write the request to the folder of the records."""
        write_file(folder / _REQUEST, json.dumps({**self._asdict(), "watched": dict(self.watched)}).encode())

    @classmethod
    def read(cls, folder: Path) -> Request:
        """Read a request."""
        return cls(**json.loads((folder / _REQUEST).read_text()))


@dataclass
class Record:
    """The record of one process.

    Attributes:
        rank: rank in the job.
        steps: optimizer steps.
        ended: whether it was stopped after the requested steps.
        losses: values that ``backward`` was called on, without the scale of a GradScaler; norms of non-scalars.
        random: digest of the final state of each generator.
        files: files of the program that it imported or ran.
        executed: file -> executed watched lines.
        fallbacks: operator -> calls that fell back to the CPU; None if the device does not count them.
        step_seconds: median time between two steps.
        host_peak: peak memory of the process in bytes.
        device_peak: peak memory of the device in bytes; None on the CPU.
        device: answers of its device to the queries of programs, as printed: type, name, capability, index, count,
            available.
        stand_ins: what ran otherwise than it would outside a verified run.
        parameters: name -> values of the parameters of every optimizer that stepped.
    """

    rank: int = 0
    steps: int = 0
    ended: bool = False
    losses: list[float] = field(default_factory=list)
    random: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    executed: dict[str, list[int]] = field(default_factory=dict)
    fallbacks: dict[str, int] | None = None
    step_seconds: float = 0.0
    host_peak: int = 0
    device_peak: int | None = None
    device: dict[str, str] = field(default_factory=dict)
    stand_ins: list[str] = field(default_factory=list)
    parameters: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    @property
    def trained(self) -> bool:
        """Whether it computed a gradient or took a step."""
        return bool(self.steps or self.losses)

    def write(self, folder: Path) -> None:
        """Write the record to a folder."""
        path = folder / f"{self.rank}-{os.getpid()}.json"
        make_file(arrays := path.with_suffix(".npz"))
        np.savez(arrays, allow_pickle=False, **self.parameters)
        facts = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)[:-1]}
        write_file(path, json.dumps(facts).encode())


def read(folder: Path) -> Sequence[Record]:
    """Read the records of a run's processes, sorted by rank."""
    found = []
    for path in sorted(folder.glob("*-*.json"), key=lambda each: int(each.stem.partition("-")[2])):
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
            parameters = {name: arrays[name] for name in arrays.files}
        found.append(Record(**json.loads(path.read_text()), parameters=parameters))
    return sorted(found, key=lambda record: record.rank)
