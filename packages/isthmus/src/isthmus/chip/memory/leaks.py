"""Live allocations by the Python line that made them."""

import atexit
import gc
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import torch

from isthmus import _C, options
from isthmus_common import package_folders

_OURS = (str(Path(torch.__file__).parent), *package_folders.folders())
_UNKNOWN = "unknown (before recording, or on a thread without Python)"


class Leak(NamedTuple):
    """Live memory of one line.

    Attributes:
        device: index.
        line: ``file:line function`` of the innermost frame outside PyTorch and Isthmus.
        blocks: number of allocations.
        bytes: their total requested size.
    """

    device: int
    line: str
    blocks: int
    bytes: int


def leaks() -> list[Leak]:
    """Live allocations by line, largest first. Lines are known only since recording started."""
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for segment in _C.memory_snapshot(False)["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                found[segment["device"], _line(block["frames"])].append(block["requested_size"])
    rows = [Leak(device, line, len(sizes), sum(sizes)) for (device, line), sizes in found.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row))


def _line(frames: list[dict[str, Any]]) -> str:
    for frame in frames:
        if not frame["filename"].startswith((*_OURS, "<frozen")):
            return f"{frame['filename']}:{frame['line']} {frame['name']}"
    return _UNKNOWN


def report_leaks(file: TextIO | None = None) -> None:
    """Print :func:`leaks`, if there are any.

    Args:
        file: stderr by default.
    """
    gc.collect()
    rows = leaks()
    if not rows:
        return
    blocks, size = sum(row.blocks for row in rows), sum(row.bytes for row in rows)
    lines = [f"isthmus: {size} bytes of device memory in use by {blocks} tensors"]
    lines += [f"  chip:{row.device} {row.bytes:>14} bytes in {row.blocks:>6}  {row.line}" for row in rows]
    print("\n".join(lines), file=file or sys.stderr, flush=True)


def report_at_exit() -> None:
    """Start recording, and print a leak report at exit, with ISTHMUS_LEAK_REPORT=1."""
    if not options.switch("leak_report"):
        return
    _C.start_memory_history(False, "state", False, 0, False, [])
    atexit.register(report_leaks)
