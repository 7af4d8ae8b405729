"""Status file of each rank, which its own thread rewrites, and the collectives in flight."""

import contextlib
import json
import os
import pickle
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from isthmus_common import package_folders
from isthmus_common.files import write_file
from isthmus_common.ranks import rank

_LIBRARY = str(Path(threading.__file__).parent)  # Python's
_PACKAGES = tuple(f"{_LIBRARY}/{each}" for each in ("site-packages", "dist-packages"))
_TOOLS = (*package_folders.folders(), str(Path(torch.__file__).parent), "<frozen ")


class Status(NamedTuple):
    """The last report of a rank.

    Attributes:
        rank, ranks, host, process: which, of how many.
        time: of this report, seconds since the epoch.
        step: completed steps.
        step_time: mean of the last interval, seconds; 0 before the first one.
        waiting: fraction of the time in which a collective was in flight, from 0 to 1.
        collective: the oldest one in flight, as ``all_reduce #3 [[4]] in group 0``; "" without one.
        since: when that one was enqueued, seconds since the epoch; 0 without one.
        stack: of the main thread, innermost frame last, ``FILE:LINE in FUNCTION``.
    """

    rank: int
    ranks: int
    host: str
    process: int
    time: float
    step: int
    step_time: float
    waiting: float
    collective: str
    since: float
    stack: list[str]

    @property
    def line(self) -> str:
        """The innermost frame outside of PyTorch and Python's library, or else the innermost one."""
        users = [each for each in self.stack if not _is_tool(each)]
        return (users or self.stack or ["unknown line"])[-1]


def _is_tool(frame: str) -> bool:
    return frame.startswith(_TOOLS) or (frame.startswith(_LIBRARY) and not frame.startswith(_PACKAGES))


def call_site() -> str:
    """Return the innermost line of the program that is running, ``FILE:LINE``; "" if it is all of tools."""
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        if not _is_tool(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{line}"
    return ""


def path(folder: Path, number: int) -> Path:
    """Return the status file of a rank."""
    return folder / f"status-{number}.json"


def take(step: int, step_time: float, waiting: float) -> Status:
    """Return the status of this process; see :class:`Status`."""
    collective, enqueued = in_flight()
    ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    return Status(
        rank(), ranks, socket.gethostname(), os.getpid(), time.time(), step, step_time, waiting,
        collective, enqueued, _main_stack(),
    )  # fmt: skip


def write(folder: Path, status: Status) -> None:
    """Replace the status file of a rank."""
    write_file(path(folder, status.rank), json.dumps(status._asdict()).encode())


def read(folder: Path) -> list[Status]:
    """Return the statuses of all ranks that have one, by rank; files that are not statuses are left out."""
    found = []
    for each in folder.glob("status-*.json"):
        # A rank that has just ended removes its file.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            status = _parse_fields(json.loads(each.read_text()))
            if each == path(folder, status.rank):
                found.append(status)
    return sorted(found)


def _parse_fields(fields: Any) -> Status:
    """Return a status; raises KeyError or TypeError if a field is missing or has another type."""
    kinds: dict[Any, Any] = {float: (int, float), list[str]: list}
    for name, kind in Status.__annotations__.items():
        expected: Any = kinds.get(kind, kind)
        if not isinstance(fields[name], expected):
            raise TypeError(name)
    if not all(isinstance(each, str) for each in fields["stack"]):
        raise TypeError("stack")
    return Status(*(fields[name] for name in Status._fields))


def in_flight() -> tuple[str, float]:
    """Return the oldest collective in flight and when it was enqueued, by the flight recorders; "" and 0 if none."""
    if not (dist.is_available() and dist.is_initialized()):
        return "", 0.0
    entries = [each for each in _entries() if not each["retired"]]
    if not entries:
        return "", 0.0
    first = min(entries, key=lambda each: each["time_created_ns"])
    name = first["profiling_name"].rpartition(":")[2]
    number = first["p2p_seq_id"] if first["is_p2p"] else first["collective_seq_id"]
    where = f"{name} #{number} of {first['input_sizes']} in group {first['process_group'][0]}"
    return where, first["time_created_ns"] / 1e9


def _entries() -> list[Any]:
    """Return the operations of the recorders of gloo and NCCL, and of the chip."""
    c10d = torch._C._distributed_c10d
    found = []
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        if dump := getattr(c10d, name, None):
            found += json.loads(dump(True, True)).get("entries", [])
    if chip := sys.modules.get("isthmus.chip"):
        found += pickle.loads(chip.dump_flight_recorder(True, True)).get("entries", [])
    return found


def _main_stack() -> list[str]:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return []
    return [f"{path}:{line} in {name}" for path, line, name, _ in _extract_frames(frame)]


def _extract_frames(frame: Any) -> list[tuple[str, int | None, str, None]]:
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    return [(each.filename, each.lineno, each.name, None) for each in reversed(summary)]
