"""The bank of silent errors: publicly reported wrong results of real backends, each planted in a correct kernel.

A file ``<class>.csv`` has the reports of a class of mistakes, one in each line: the public thread, the backend, the
operators to plant it in, the condition under which results are wrong, what was wrong, and the fault: a call of a
function of :mod:`tools.mutation.bank.faults` that makes the wrong kernel.

The rows are written down before the suite is tried on them; do not tune them to the suite.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.mutation.bank import faults
from tools.mutation.kernel import Target
from tools.mutation.mutant import CLASSES, Mutant, Wrong

MUTATION = "reported in public"
BACKENDS = (
    "AMD NPU",
    "Ascend",
    "Candle",
    "CoreML",
    "CPU",
    "CUDA",
    "DirectML",
    "HammerBlade",
    "Inductor",
    "JAX",
    "LiteRT",
    "Metal",
    "MetaX",
    "MLX",
    "MPS",
    "ND4J",
    "Neuron",
    "oneDNN",
    "OpenCL",
    "OpenGL",
    "OpenVINO",
    "OpenVX",
    "ROCm",
    "Spyre",
    "SYCL",
    "Tenstorrent",
    "TileLang",
    "tinygrad",
    "Triton",
    "TVM",
    "Vulkan",
    "WebGPU",
    "XLA",
    "XPU",
)
CONDITIONS = (
    "strides",
    "offset",
    "expanded",
    "overlap",
    "aliasing",
    "channels-last",
    "size",
    "blocks",
    "empty",
    "zero-dim",
    "NaN",
    "infinity",
    "negative zero",
    "denormal",
    "dtype",
    "integer range",
    "precision",
    "repeated index",
    "index range",
    "dimensions",
    "broadcast",
    "arguments",
    "order of calls",
    "concurrency",
    "uninitialized",
    "mask",
    "random numbers",
    "any",
)


class Report(NamedTuple):
    """A publicly reported wrong result.

    Attributes:
        kind: class of mistakes, one of ``CLASSES``.
        thread: repository#number.
        backend: where it was reported, one of ``BACKENDS``.
        operators: operators of the opset to plant it in.
        condition: when results are wrong, one of ``CONDITIONS``.
        text: what was wrong.
        fault: the call that makes the wrong kernel.
    """

    kind: str
    thread: str
    backend: str
    operators: tuple[str, ...]
    condition: str
    text: str
    fault: str

    def wrong(self) -> Wrong:
        """Make the wrong kernel."""
        return faults.make(self.fault)

    def mutant(self, operator: str) -> Mutant:
        """Return the mutant of an operator's kernel that has the mistake."""
        return Mutant(operator, self.kind, MUTATION, f"{self.thread}: {self.text}", self.wrong)


def _read(kind: str) -> Iterator[Report]:
    file = Path(__file__).with_name(f"{kind.replace(' ', '_')}.csv")
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            operators = tuple(n if "::" in n else f"aten::{n}" for n in row.pop("operators").split())
            yield Report(kind=kind, operators=operators, **row)


REPORTS: tuple[Report, ...] = tuple(report for kind in CLASSES for report in _read(kind))


def mutants(target: Target) -> Iterator[Mutant]:
    """Yield the mutants of an operator's kernel that have its reported mistakes."""
    for report in REPORTS:
        if target.name in report.operators:
            yield report.mutant(target.name)
