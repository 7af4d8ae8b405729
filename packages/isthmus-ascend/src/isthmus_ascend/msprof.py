"""The command ``msprof``: tables and a trace of what the reference runtime has profiled.

torch_npu's profiler calls ``msprof --export=on --output=PROF_...`` and merges the files with its own. Layouts: those
that torch_npu (BSD) reads. Times are of the machine's processors, which stand for the NPU's cores.
"""

import ast
import csv
import io
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from isthmus_common.files import make_folder, write_file

USAGE = """\
Usage: msprof --export=on --output=DIR    tables and trace of a folder PROF_*, in DIR/mindstudio_profiler_output
       msprof --analyze=on --output=DIR   times and sizes of collectives, in DIR/analyze
       msprof --help                      this text
Profile with torch_npu.profiler."""

OUTPUT = "mindstudio_profiler_output"
TASKS = "device_*/data/isthmus_tasks.tsv"
# Task types of a card; the host chip has one kind of core.
TYPES = {"kernel": "AI_CORE", "collective": "COMMUNICATION", "copy": "MEMCPY_ASYNC"}
_PREFIX = "aclnn"


class UsageError(ValueError):
    """Wrong arguments; one line."""


class Task(NamedTuple):
    """A task of a stream.

    Attributes:
        device: that ran it.
        kind: of :data:`TYPES`.
        function: name of the function that enqueued it.
        stream: number.
        thread: that enqueued it.
        called, returned: when the function was called and returned, ns of the wall clock.
        started, ended: when the stream ran it, ns of the wall clock.
        operands: shapes and dtypes of the inputs, then of the outputs; of a collective its bytes and communicator.
        number: from 0, by start on its device.
        order: from 0, of a collective among those of its communicator, which all ranks call in one order.
    """

    device: int
    kind: str
    function: str
    stream: int
    thread: int
    called: int
    returned: int
    started: int
    ended: int
    operands: tuple[str, ...]
    number: int = 0
    order: int = 0

    @property
    def type(self) -> str:
        """Type of the operator."""
        return self.function.removeprefix(_PREFIX)

    @property
    def name(self) -> str:
        """Name of the kernel, or of the collective."""
        if self.kind == "collective":
            return f"{self.function}_{self.group[-3:]}_{self.order}_1"
        return f"{self.function}_{self.type}" if self.kind == "kernel" else self.function

    @property
    def group(self) -> str:
        """Name of a collective's communicator."""
        return self.operands[1] if self.kind == "collective" and len(self.operands) > 1 else ""


def main() -> None:
    """Run the command with the arguments of the process."""
    try:
        print(run(sys.argv[1:]))
    except UsageError as error:
        print(f"msprof: {error}; see msprof --help", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        print(f"msprof: {error.filename}: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None


def run(arguments: list[str]) -> str:
    """Return the line that the command prints.

    Raises:
        UsageError: unknown arguments, or a folder without profiled tasks.
        OSError: a file cannot be read or written.
    """
    if arguments == ["--help"]:
        return USAGE
    options = dict(each.partition("=")[::2] for each in arguments)
    if set(options) not in ({"--export", "--output"}, {"--analyze", "--output"}):
        raise UsageError(f"unknown arguments: {' '.join(arguments) or '(none)'}")
    if (options.get("--export") or options.get("--analyze")) != "on":
        raise UsageError("--export and --analyze take the value on")
    folder = Path(options["--output"])
    if not (folder / "host/start_info").is_file():
        raise UsageError(f"not a folder PROF_* of the reference runtime: {folder}")
    if "--analyze" in options:
        return f"analyzed {analyze(folder)} collectives"
    return f"exported {export(folder)} tasks to {folder / OUTPUT}"


def export(folder: Path) -> int:
    """Write tables and trace of a profile, and return the number of its tasks.

    Args:
        folder: PROF_*, with the files of :data:`TASKS`.
    """
    process, tasks = read(folder)
    output = folder / OUTPUT
    make_folder(output)
    suffix = time.strftime("%Y%m%d%H%M%S")
    for name, rows in {
        "op_summary": op_summary(tasks),
        "op_statistic": op_statistic(tasks),
        "task_time": task_time(tasks),
        "api_statistic": api_statistic(tasks),
    }.items():
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        write_file(output / f"{name}_{suffix}.csv", text.getvalue().encode())
    write_file(output / f"msprof_{suffix}.json", json.dumps(trace(process, tasks)).encode())
    return len(tasks)


def analyze(folder: Path) -> int:
    """Write communication.json of a profile, and return the number of its collectives; none writes no file."""
    _, tasks = read(folder)
    found = [task for task in tasks if task.kind == "collective"]
    if found:
        output = folder / "analyze"
        make_folder(output)
        write_file(output / "communication.json", json.dumps(communication(found)).encode())
    return len(found)


def communication(tasks: list[Task]) -> dict[str, Any]:
    """Return times and sizes of collectives by name and communicator.

    The time of a collective includes its wait for other ranks. Data goes through the memory of the machine (SDMA).
    """
    found = {}
    for task in tasks:
        milliseconds, megabytes = (task.ended - task.started) / 1e6, int(task.operands[0] or 0) / 1e6
        times = ("Elapse Time(ms)", "Transit Time(ms)")
        unknown = ("Wait Time(ms)", "Synchronization Time(ms)", "Idle Time(ms)")
        ratios = ("Wait Time Ratio", "Synchronization Time Ratio")
        bandwidths = {name: _bandwidth(0, 0) for name in ("RDMA", "HCCS", "PCIE", "SIO")}
        found[f"{task.name}@{task.group}"] = {
            "Communication Time Info": {
                "Start Timestamp(us)": float(_us(task.started)),
                **dict.fromkeys(times, milliseconds),
                **dict.fromkeys((*unknown, *ratios), 0),
            },
            "Communication Bandwidth Info": {**bandwidths, "SDMA": _bandwidth(milliseconds, megabytes)},
        }
    return found


def _bandwidth(milliseconds: float, megabytes: float) -> dict[str, Any]:
    return {
        "Transit Time(ms)": milliseconds,
        "Transit Size(MB)": megabytes,
        "Bandwidth(GB/s)": round(megabytes / milliseconds, 4) if milliseconds else 0,
        "Large Packet Ratio": 0,
        "Size Distribution": {str(megabytes): [1, milliseconds]} if megabytes else {},
    }


def read(folder: Path) -> tuple[int, list[Task]]:
    """Return the process that was profiled, and its tasks by device and start."""
    info = ast.literal_eval((folder / "host/start_info").read_text())
    offset = int(info["collectionTimeBegin"]) * 1000 - int(info["clockMonotonicRaw"])
    tasks = []
    for path in folder.glob(TASKS):
        device = int(path.parts[-3].removeprefix("device_"))
        found = [_task(device, offset, line.split("\t")) for line in path.read_text().splitlines()]
        found.sort(key=lambda task: task.started)
        orders: dict[str, int] = defaultdict(int)
        for number, task in enumerate(found):
            tasks.append(task._replace(number=number, order=orders[task.group]))
            orders[task.group] += 1
    return int(info["pid"]), sorted(tasks, key=lambda task: (task.device, task.number))


def _task(device: int, offset: int, cells: list[str]) -> Task:
    kind, function, stream, thread = cells[:4]
    called, returned, started, ended = (int(each) + offset for each in cells[4:8])
    operands = tuple(cells[8:])
    return Task(device, kind, function, int(stream), int(thread), called, returned, started, ended, operands)


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03}"


def op_summary(tasks: list[Task]) -> list[list[object]]:
    """Return a row for each operator and collective."""
    rows: list[list[object]] = [
        [
            *("Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "OP State", "Task Type"),
            *("Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)", "Block Num", "Mix Block Num"),
            *("Input Shapes", "Input Data Types", "Input Formats"),
            *("Output Shapes", "Output Data Types", "Output Formats"),
        ]
    ]
    previous: dict[int, int] = {}  # end of the last task, by device
    for task in tasks:
        if task.kind == "copy":
            continue
        wait = max(task.started - previous.get(task.device, task.started), 0)
        previous[task.device] = max(task.ended, previous.get(task.device, 0))
        operands = task.operands if task.kind == "kernel" else ()
        shapes, dtypes, out_shapes, out_dtypes = (*operands, *("",) * 4)[:4]
        rows.append(
            [
                *(task.device, 0, task.number, task.stream, task.name, task.type, "N/A", TYPES[task.kind]),
                *(_us(task.started), _us(task.ended - task.started), _us(wait), 0, 0),
                *(f'"{shapes}"', dtypes, _formats(dtypes)),
                *(f'"{out_shapes}"', out_dtypes, _formats(out_dtypes)),
            ]
        )
    return rows


def _formats(dtypes: str) -> str:
    return ";".join("ND" for _ in filter(None, dtypes.split(";")))


def op_statistic(tasks: list[Task]) -> list[list[object]]:
    """Return a row for each type of operator: number and times in microseconds."""
    spent: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for task in tasks:
        if task.kind == "kernel":
            spent[task.device, task.type, TYPES[task.kind]].append((task.ended - task.started) / 1000)
    total = sum(map(sum, spent.values())) or 1
    rows: list[list[object]] = [
        [
            *("Device_id", "OP Type", "Core Type", "Count"),
            *("Total Time(us)", "Min Time(us)", "Avg Time(us)", "Max Time(us)", "Ratio(%)"),
        ]
    ]
    for key, times in sorted(spent.items(), key=lambda item: -sum(item[1])):
        figures = sum(times), min(times), sum(times) / len(times), max(times), 100 * sum(times) / total
        rows.append([*key, len(times), *(round(figure, 3) for figure in figures)])
    return rows


def task_time(tasks: list[Task]) -> list[list[object]]:
    """Return a row for each task, copies too."""
    rows: list[list[object]] = [
        [
            *("Device_id", "kernel_name", "kernel_type", "stream_id", "task_id"),
            *("task_time(us)", "task_start(us)", "task_stop(us)"),
        ]
    ]
    for task in tasks:
        times = _us(task.ended - task.started), _us(task.started), _us(task.ended)
        rows.append([task.device, task.name, TYPES[task.kind], task.stream, task.number, *times])
    return rows


def api_statistic(tasks: list[Task]) -> list[list[object]]:
    """Return a row for each function that was called: number and times in microseconds."""
    spent: dict[str, list[float]] = defaultdict(list)
    for task in tasks:
        spent[task.function].append((task.returned - task.called) / 1000)
    rows: list[list[object]] = [
        ["Device_id", "Level", "API Name", "Time(us)", "Count", "Avg(us)", "Min(us)", "Max(us)", "Variance"]
    ]
    for name, times in sorted(spent.items(), key=lambda item: -sum(item[1])):
        average = sum(times) / len(times)
        variance = sum((each - average) ** 2 for each in times) / len(times)
        figures = average, min(times), max(times), variance
        total = round(sum(times), 3)
        rows.append(["host", "acl", name, total, len(times), *(round(figure, 3) for figure in figures)])
    return rows


def trace(process: int, tasks: list[Task]) -> list[dict[str, Any]]:
    """Return the events of a Chrome trace: calls, tasks, the flows between them, and their overlap."""
    host = _process(process, 1, 0)
    events = _metadata(host, "CANN", "CPU", 1)
    for device in sorted({task.device for task in tasks}):
        here = [task for task in tasks if task.device == device]
        hardware, overlap = _process(process, 2, device), _process(process, 4, device)
        communication = _process(process, 3, device)
        events += _metadata(hardware, "Ascend Hardware", f"NPU {device}", 2)
        events += _metadata(communication, "Communication", f"NPU {device}", 3)
        events += _metadata(overlap, "Overlap Analysis", f"NPU {device}", 4)
        for stream in sorted({task.stream for task in here}):
            events.append(_name_thread(hardware, stream, f"Stream {stream}"))
        for task in here:
            place = communication if task.kind == "collective" else hardware
            connection = device << 32 | task.number
            events += _events_of(task, host, place, connection)
        events += _overlap(overlap, here)
    return events


def _process(process: int, index: int, device: int) -> int:
    return process << 10 | index << 5 | device


def _metadata(pid: int, name: str, label: str, index: int) -> list[dict[str, Any]]:
    common = {"ph": "M", "pid": pid, "tid": 0}
    return [
        {"name": "process_name", **common, "args": {"name": name}},
        {"name": "process_labels", **common, "args": {"labels": label}},
        {"name": "process_sort_index", **common, "args": {"sort_index": index}},
    ]


def _name_thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _span(name: str, pid: int, tid: int, begin: int, end: int, **arguments: object) -> dict[str, Any]:
    span = {"name": name, "pid": pid, "tid": tid, "ts": _us(begin), "dur": (end - begin) / 1000, "ph": "X"}
    return {**span, "args": arguments}


def _events_of(task: Task, host: int, place: int, connection: int) -> Iterable[dict[str, Any]]:
    level = "HCCL" if task.kind == "collective" else "AscendCL"
    yield _span(f"{level}@{task.function}", host, task.thread, task.called, task.returned)
    arguments = {
        "Model Id": 0,
        "Task Type": TYPES[task.kind],
        "Stream Id": task.stream,
        "Task Id": task.number,
        "connection_id": connection,
    }
    yield _span(task.name, place, task.stream, task.started, task.ended, **arguments)
    flow = {"name": f"HostToDevice{connection}", "id": str(connection), "cat": "HostToDevice"}
    yield {**flow, "ph": "s", "pid": host, "tid": task.thread, "ts": _us(task.called)}
    yield {**flow, "ph": "f", "bp": "e", "pid": place, "tid": task.stream, "ts": _us(task.started)}


Spans = list[tuple[int, int]]


def _overlap(pid: int, tasks: list[Task]) -> list[dict[str, Any]]:
    """Return when the device computes, communicates, communicates only, and is idle."""

    def spans(wanted: Callable[[Task], bool]) -> Spans:
        return _union([(task.started, task.ended) for task in tasks if wanted(task)])

    computing = spans(lambda task: task.kind == "kernel")
    communication = spans(lambda task: task.kind == "collective")
    busy = _union(computing + communication)
    whole = [(busy[0][0], busy[-1][1])] if busy else []
    lanes = {
        "Computing": computing,
        "Communication": communication,
        "Communication(Not Overlapped)": _difference(communication, computing),
        "Free": _difference(whole, busy),
    }
    events = []
    for tid, (name, found) in enumerate(lanes.items()):
        events.append(_name_thread(pid, tid, name))
        events += [_span(name, pid, tid, begin, end) for begin, end in found]
    return events


def _union(spans: Spans) -> Spans:
    merged: Spans = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _difference(spans: Spans, others: Spans) -> Spans:
    """Return the parts of the spans that are outside the others."""
    edges = [
        edge
        for which, each in enumerate((spans, others))
        for begin, end in each
        for edge in ((begin, which, 1), (end, which, -1))
    ]
    inside, since = [0, 0], 0
    left: Spans = []
    for moment, which, change in sorted(edges):
        if inside[0] and not inside[1] and moment > since:
            left.append((since, moment))
        inside[which] += change
        since = moment
    return left


if __name__ == "__main__":
    main()
