"""Small traces and jobs for the tests of isthmus.memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from isthmus.memory.trace import Trace
from isthmus_common.application import app
from tools.traces import catalogue
from tools.traces.models import Shape
from tools.traces.training import Job

PUBLISHED = Path(__file__).resolve().parents[2] / "benchmarks" / "traces"
COLUMNS = {"kind": np.uint8, "id": np.int32, "size": np.int64, "stream": np.int16}
MIB = 1 << 20


def make(*events: tuple[int, ...]) -> Trace:
    """Make a trace of (kind, id, size, stream) rows; missing values are 0."""
    rows = np.array([event + (0,) * (4 - len(event)) for event in events], np.int64).reshape(-1, 4)
    columns = {name: row.astype(dtype) for (name, dtype), row in zip(COLUMNS.items(), rows.T, strict=True)}
    return Trace(**columns, name="small", made="by hand", model="none")


def tiny(**changes) -> Job:
    shape = Shape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocabulary=512)
    return dataclasses.replace(Job(shape=shape, lengths=lambda _: (2, 32), steps=3), **changes)


def record_trace(job: Job) -> Trace:
    return catalogue.record(job, name="tiny", made="a test", model="tiny")


def isthmus(*words: object, code: int = 0) -> str:
    """Standard output, or standard error of a command that fails."""
    result = CliRunner().invoke(app, ["memory", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout
