"""A Chrome trace, its events sorted into what the device did, what the host ran and what it called.

Read are traces of ``torch.profiler`` on a chip, CUDA or XPU, and those of torch_npu, which mark the work of the
device by the name of its process. Times are microseconds, as in the file.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
_RUNTIME = {
    *("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver", "mtia_runtime"),
    *("privateuse1_runtime", "privateuse1_driver"),
}
_OPERATOR = {"cpu_op", "Operator"}
_FRAME = {"user_annotation", "python_function"}
# Processes of torch_npu's traces, whose events have no category.
_NPU_DEVICE = "Ascend Hardware"
_NPU_RUNTIME = "CANN"

_ENDLESS = 1e21  # microseconds: 30 million years

Row = tuple[str, str]
"""Process and thread, or device and stream."""


class ProfileError(ValueError):
    """A trace that cannot be used; one line for people."""


@dataclass(slots=True)
class Event:
    """Something with a beginning and an end on one row."""

    name: str
    start: float
    duration: float
    row: Row
    external: int = 0
    """The operator that it belongs to; 0 if the trace does not say."""

    @property
    def end(self) -> float:
        """When it ended, in microseconds."""
        return self.start + self.duration


@dataclass(slots=True)
class Flow:
    """One end of an arrow."""

    key: tuple[str, str]
    row: Row
    time: float


@dataclass
class Trace:
    """The events of a file, each list sorted by start, and enclosing events first."""

    path: Path
    device: list[Event] = field(default_factory=list)
    operators: list[Event] = field(default_factory=list)
    runtime: list[Event] = field(default_factory=list)
    frames: list[Event] = field(default_factory=list)
    """Python functions and annotations such as ``ProfilerStep#3``."""
    flow_starts: list[Flow] = field(default_factory=list)
    flow_ends: list[Flow] = field(default_factory=list)
    ignored: int = 0
    """Events left out because their time is none: negative in length, infinite or not a number."""

    def window(self) -> tuple[float, float]:
        """Beginning of the first and end of the last event, in microseconds."""
        events = [*self.device, *self.operators, *self.runtime]
        return min(event.start for event in events), max(event.end for event in events)


def read(path: Path) -> Trace:
    """Read a trace, plain or gzipped. Raises ProfileError if it is none, or cut off, or covers no time."""
    events = _events(path, _parse(path, _content(path)))
    trace = Trace(path)
    processes = _process_names(events)
    for event in events:
        _sort_in(trace, event, processes)
    if not (trace.device or trace.operators or trace.runtime):
        ignored = f" with a usable time ({trace.ignored} have none)" if trace.ignored else ""
        raise ProfileError(f"{path}: the trace has no operators and no kernels{ignored}; profile some steps")
    start, end = trace.window()
    if end <= start:
        raise ProfileError(f"{path}: its events take no time at all; profile some steps")
    for events_of_kind in (trace.device, trace.operators, trace.runtime, trace.frames):
        events_of_kind.sort(key=lambda event: (event.start, -event.duration))
    return trace


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise ProfileError(f"{path}: the gzip file is cut off or damaged; copy it again") from None


def _parse(path: Path, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        if content.lstrip()[:1] not in (b"{", b"["):
            raise ProfileError(f"{path}: not a Chrome trace; give what export_chrome_trace() wrote") from None
        place = f" at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise ProfileError(
            f"{path}: the trace is cut off or damaged{place}; copy or export it again"
        ) from None


def _events(path: Path, parsed: Any) -> list[dict[str, Any]]:
    found = parsed.get("traceEvents") if isinstance(parsed, dict) else parsed
    if not isinstance(found, list):
        raise ProfileError(f"{path}: it has no traceEvents; give what export_chrome_trace() wrote")
    return [event for event in found if isinstance(event, dict)]


def _process_names(events: Iterable[dict[str, Any]]) -> dict[str, str]:
    return {
        str(event.get("pid")): str(_args(event).get("name", ""))
        for event in events
        if event.get("ph") == "M" and event.get("name") == "process_name"
    }


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _number(value: Any) -> float | None:
    """None for what is no number, and for one so large that sums of such are none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < _ENDLESS else None


def _sort_in(trace: Trace, event: dict[str, Any], processes: dict[str, str]) -> None:
    start = _number(event.get("ts"))
    if start is None:
        trace.ignored += "ts" in event
        return
    row = (str(event.get("pid")), str(event.get("tid")))
    phase = event.get("ph")
    if phase in ("s", "f"):
        flow = Flow((str(event.get("cat")), str(event.get("id"))), row, start)
        (trace.flow_starts if phase == "s" else trace.flow_ends).append(flow)
    elif phase == "X":
        kind = _kind(trace, str(event.get("cat", "")), processes.get(row[0], ""))
        if kind is None:
            return
        external = _number(_args(event).get("External id", _args(event).get("external id")))
        duration = _number(event.get("dur", 0))
        if duration is None or duration < 0:
            trace.ignored += 1
            return
        kind.append(Event(str(event.get("name", "")), start, duration, row, int(external or 0)))


def _kind(trace: Trace, category: str, process: str) -> list[Event] | None:
    if category in _DEVICE or (not category and _NPU_DEVICE in process):
        return trace.device
    if category in _OPERATOR:
        return trace.operators
    if category in _RUNTIME or (not category and process == _NPU_RUNTIME):
        return trace.runtime
    return trace.frames if category in _FRAME else None
