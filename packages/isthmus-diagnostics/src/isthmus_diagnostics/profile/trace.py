"""Reader of Chrome traces; events are sorted into device work, operators, runtime calls and frames.

Supports traces of ``torch.profiler`` on a chip, CUDA or XPU, and of torch_npu, which marks device work by the name of
its process. Times are in microseconds, as in the file.
"""

import gzip
import json
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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
_NPU_DEVICE = ("Ascend Hardware", "Communication", "HCCL")
_NPU_RUNTIME = "CANN"

# Files beside a vendor's trace_view.json, and the rank in the name of a file.
_VENDOR = re.compile(r"communication(_matrix)?\.json|profiler_(info|metadata).*\.json")
_RANK = re.compile(r"(?:rank|profiler_info)[-_]?(\d+)")

_ENDLESS = 1e21  # microseconds: 30 million years
# Share of the busiest device's work that another device of the process must exceed to be analysed.
_STRAY = 0.01

Row = tuple[str, str]
"""Process and thread, or device and stream."""


class ProfileError(ValueError):
    """A trace is invalid; the message is one line."""


@dataclass(slots=True)
class Event:
    """A period on one row."""

    name: str
    start: float
    duration: float
    row: Row
    external: int = 0
    """ID of its operator; 0 if unknown."""
    args: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def end(self) -> float:
        """End in microseconds."""
        return self.start + self.duration


@dataclass(slots=True)
class Flow:
    """One end of a flow arrow."""

    key: tuple[str, str]
    row: Row
    time: float


@dataclass(slots=True)
class Memory:
    """The state of a device's allocator after an allocation or a release, in bytes."""

    time: float
    device: str
    allocated: int
    reserved: int


@dataclass
class Trace:
    """The events of a file; lists are sorted by start, enclosing events first."""

    path: Path
    device: list[Event] = field(default_factory=list)
    operators: list[Event] = field(default_factory=list)
    runtime: list[Event] = field(default_factory=list)
    frames: list[Event] = field(default_factory=list)
    """Python functions and annotations such as ``ProfilerStep#3``."""
    flow_starts: list[Flow] = field(default_factory=list)
    flow_ends: list[Flow] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    """Empty unless profiled with ``profile_memory=True``."""
    rank: int = 0
    device_index: str = ""
    """Device of a process that uses several; empty if it uses one."""
    groups: list[list[int]] = field(default_factory=list)
    """Ranks of the process groups, as far as the file names them."""
    ignored: int = 0
    """Number of events ignored because their time is negative, infinite or not a number."""

    @property
    def name(self) -> str:
        """The rank, and its device if it uses several."""
        return f"{self.rank}, device {self.device_index}" if self.device_index else str(self.rank)

    def window(self) -> tuple[float, float]:
        """Return the start of the first and the end of the last event, in microseconds."""
        events = [*self.device, *self.operators, *self.runtime]
        return min(event.start for event in events), max(event.end for event in events)


def read(path: Path) -> Trace:
    """Read a trace, plain or gzipped. Raises ProfileError if it is invalid, truncated or empty."""
    parsed = _parse(path, _content(path))
    events = _events(path, parsed)
    trace = Trace(path, rank=_rank(path, parsed), groups=_groups(parsed))
    processes = _process_names(events)
    for event in events:
        _sort_in(trace, event, processes)
    if not (trace.device or trace.operators or trace.runtime):
        ignored = f" with a valid time ({trace.ignored} have an invalid one)" if trace.ignored else ""
        raise ProfileError(f"{path}: the trace has no operators and no kernels{ignored}; profile some steps")
    start, end = trace.window()
    if end <= start:
        raise ProfileError(f"{path}: the events have no duration; profile some steps")
    for events_of_kind in (trace.device, trace.operators, trace.runtime, trace.frames):
        events_of_kind.sort(key=lambda event: (event.start, -event.duration))
    trace.memory.sort(key=lambda memory: memory.time)
    return trace


def read_folder(path: Path) -> list[Trace]:
    """Read the traces of all ranks in a folder, by rank; a file is a folder of one.

    A vendor's ``ASCEND_PROFILER_OUTPUT`` counts as the trace in it. A process that uses several devices is as many
    traces, with the same events of the host.
    """
    files = [path]
    if path.is_dir():
        found = [*path.rglob("*.json"), *path.rglob("*.json.gz")]
        vendor = [file for file in found if file.name == "trace_view.json"]
        files = vendor or [file for file in found if not _VENDOR.fullmatch(file.name)]
    if not files:
        raise ProfileError(f"{path}: no *.json or *.json.gz in this folder; give a folder of traces")
    traces = sorted((read(file) for file in sorted(files)), key=lambda trace: trace.rank)
    if len({trace.rank for trace in traces}) < len(
        traces
    ):  # the files do not tell: in the order of their names
        for rank, trace in enumerate(traces):
            trace.rank = rank
    return [of_device for trace in traces for of_device in _devices(trace)]


def _devices(trace: Trace) -> list[Trace]:
    work: dict[str, list[Event]] = defaultdict(list)
    for event in trace.device:
        work[str(event.args.get("device", ""))].append(event)
    times = {device: sum(event.duration for event in events) for device, events in work.items()}
    used = [device for device in sorted(times) if times[device] > _STRAY * max(times.values())]
    if len(used) < 2:
        return [replace(trace, device=work[used[0]])] if used else [trace]
    return [replace(trace, device=work[device], device_index=device) for device in used]


def _groups(parsed: Any) -> list[list[int]]:
    """Return the ranks of the process groups in ``distributedInfo``."""
    info = parsed.get("distributedInfo") if isinstance(parsed, dict) else None
    found = info.get("pg_config") if isinstance(info, dict) else None
    groups = (
        [group.get("ranks") for group in found if isinstance(group, dict)] if isinstance(found, list) else []
    )
    return [group for group in map(ranks_of, groups) if group]


def ranks_of(value: Any) -> list[int]:
    """Return the ranks in a list or in its text; empty if it is neither or abbreviated."""
    text = str(value)
    return [int(number) for number in re.findall(r"\d+", text)] if re.fullmatch(r"\[[\d, ]*\]", text) else []


def _rank(path: Path, parsed: Any) -> int:
    """Return the rank that the file, or a file beside a vendor's output, names; 0 if none."""
    info = parsed.get("distributedInfo") if isinstance(parsed, dict) else None
    if isinstance(info, dict) and isinstance(info.get("rank"), int):
        return int(info["rank"])
    named = [*path.parent.parent.glob("profiler_info_*.json")] if path.name == "trace_view.json" else [path]
    found = _RANK.search(named[0].name) if named else None
    return int(found[1]) if found else 0


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise ProfileError(f"{path}: the gzip file is truncated or damaged; copy it again") from None


def _parse(path: Path, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        if content.lstrip()[:1] not in (b"{", b"["):
            raise ProfileError(
                f"{path}: not a Chrome trace; give a file written by export_chrome_trace()"
            ) from None
        place = f" at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise ProfileError(
            f"{path}: the trace is truncated or damaged{place}; copy or export it again"
        ) from None


def _events(path: Path, parsed: Any) -> list[dict[str, Any]]:
    found = parsed.get("traceEvents") if isinstance(parsed, dict) else parsed
    if not isinstance(found, list):
        raise ProfileError(f"{path}: no traceEvents; give a file written by export_chrome_trace()")
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
    """Return a number, or None if it is not a number or too large to be summed."""
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
        name = str(event.get("name", ""))
        kind.append(Event(name, start, duration, row, int(external or 0), _args(event)))
    elif event.get("name") == "[memory]":
        _add_memory(trace, start, _args(event))


def _add_memory(trace: Trace, time: float, args: dict[str, Any]) -> None:
    allocated, reserved = _number(args.get("Total Allocated")), _number(args.get("Total Reserved"))
    if args.get("Device Type") != 0 and allocated is not None:  # 0 is the host
        memory = Memory(time, str(args.get("Device Id")), int(allocated), int(reserved or 0))
        trace.memory.append(memory)


def _kind(trace: Trace, category: str, process: str) -> list[Event] | None:
    if category in _DEVICE or (not category and process.startswith(_NPU_DEVICE)):
        return trace.device
    if category in _OPERATOR:
        return trace.operators
    if category in _RUNTIME or (not category and process == _NPU_RUNTIME):
        return trace.runtime
    return trace.frames if category in _FRAME else None
