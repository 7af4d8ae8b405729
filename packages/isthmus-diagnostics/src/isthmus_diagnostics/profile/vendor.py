"""Tables that torch_npu writes beside ``trace_view.json`` in ``ASCEND_PROFILER_OUTPUT``."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

from isthmus_diagnostics.profile.ranks import Link
from isthmus_diagnostics.profile.roofline import Work
from isthmus_diagnostics.profile.steps import Breakdown
from isthmus_diagnostics.profile.trace import Memory, ProfileError

_TYPES = {"FLOAT": "float", "DT_BF16": "c10::BFloat16", "FLOAT16": "c10::Half", "DOUBLE": "double"}
_PRODUCTS = re.compile(r"^(Batch)?MatMul", re.IGNORECASE)


def breakdown(trace: Path) -> list[Breakdown]:
    """Return the steps of ``step_trace_time.csv``; none without it, or if the trace was not recorded by steps."""
    return [_step(row) for row in _rows(trace.with_name("step_trace_time.csv")) if row.get("Step")]


def _step(row: dict[str, str]) -> Breakdown:
    compute, free = _number(row, "Computing"), _number(row, "Free")
    exposed = _number(row, "Communication(Not Overlapped)")
    return Breakdown(
        step=int(_number(row, "Step")),
        time=compute + exposed + free,
        compute=compute,
        exposed=exposed,
        overlapped=_number(row, "Overlapped"),
        copies=0.0,  # the vendor counts them as free
        free=free,
        bubble=_number(row, "Bubble"),
    )


def kernels(trace: Path) -> list[Work]:
    """Return the kernels of ``kernel_details.csv`` by type and shapes, the longest first."""
    found: dict[tuple[str, str, str], Work] = {}
    for row in _rows(trace.with_name("kernel_details.csv")):
        shapes = row.get("Input Shapes", "").strip('"').replace(",", "x").replace(";", " ").replace("N/A", "")
        dtype = row.get("Input Data Types", "").partition(";")[0]
        key = (row.get("Type") or row.get("Name", ""), shapes, _TYPES.get(dtype, "float"))
        work = found.setdefault(key, Work(*key))
        work.calls += 1
        work.time += _number(row, "Duration(us)")
        work.flops += _flops(key[0], shapes, row.get("Output Shapes", ""))
    return sorted(found.values(), key=lambda work: -work.time)


def _flops(kind: str, shapes: str, output: str) -> float:
    """Return the operations of a matrix product: 2 for each output and each element that it sums over."""
    first = [int(size) for size in shapes.partition(" ")[0].split("x") if size.isdigit()]
    made = [int(size) for size in re.findall(r"\d+", output.partition(";")[0])]
    if not _PRODUCTS.search(kind) or len(first) < 2 or len(made) < 2:
        return 0.0
    summed = math.prod(first[-2:]) / made[-2]  # the shape is (rows, summed), or its transpose
    return 2.0 * math.prod(made) * summed


def memory(trace: Path) -> list[Memory]:
    """Return PyTorch's rows of ``memory_record.csv``, by time; none unless profiled with ``profile_memory=True``."""
    rows = [row for row in _rows(trace.with_name("memory_record.csv")) if row.get("Component") == "PTA"]
    found = []
    for row in rows:
        allocated, reserved = (
            int(_number(row, f"Total {kind}(MB)") * 2**20) for kind in ("Allocated", "Reserved")
        )
        device = row.get("Device Type", "").rpartition(":")[2]
        found.append(Memory(_number(row, "Timestamp(us)"), device, allocated, reserved))
    return sorted(found, key=lambda memory: memory.time)


def links(trace: Path) -> list[Link]:
    """Return the collectives of ``communication.json`` by name and group, the longest first."""
    path = trace.with_name("communication.json")
    if not path.is_file():
        return []
    try:
        steps = json.loads(path.read_text())
        calls = [
            item for step in steps.values() for kind in ("collective", "p2p") for item in step[kind].items()
        ]
        found = [_link(name, call) for name, call in calls if not name.startswith("Total")]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProfileError(f"{path}: not torch_npu's communication.json; export the profile again") from None
    return sorted(found, key=lambda link: -link.time)


def _link(name: str, call: dict[str, dict[str, Any]]) -> Link:
    bandwidth = call["Communication Bandwidth Info"]
    sizes = [float(link.get("Transit Size(MB)", 0)) for link in bandwidth.values() if isinstance(link, dict)]
    kind, _, group = name.partition("@")
    time = 1e3 * float(call["Communication Time Info"]["Transit Time(ms)"])
    return Link(kind, group[-8:], int(1e6 * max(sizes, default=0.0)), 1, time)


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8", errors="replace") as stream:
        return list(csv.DictReader(stream))


def _number(row: dict[str, str], name: str) -> float:
    try:
        return float(row.get(name) or 0)
    except ValueError:
        raise ProfileError(f"row with {name} = {row[name]!r}, not a number; export again") from None
