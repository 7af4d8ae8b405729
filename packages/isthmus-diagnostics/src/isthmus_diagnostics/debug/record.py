"""Output of the debugging tools: lines on standard error, a JSON Lines file, a summary, the exit status."""

import atexit
import json
import os
import sys
import threading
from collections import Counter
from io import FileIO
from pathlib import Path
from typing import Any

from isthmus_common.files import make_folder
from isthmus_diagnostics.options import TABLE

EXIT_CODE = 3


def folder() -> Path:
    """Return the output folder (ISTHMUS_DEBUG_FOLDER), created with mode 0750 if absent."""
    path = folder_path()
    make_folder(path)
    return path


def folder_path() -> Path:
    """Return the path of the output folder without creating it."""
    return Path(TABLE.text("debug_folder"))


def print_line(text: str) -> None:
    """Print a line to standard error, after flushing the program's output."""
    sys.stdout.flush()
    print(f"isthmus: {text}", file=sys.stderr, flush=True)


def rank() -> str:
    """Return ``rank 3``, or "" outside a distributed job."""
    return f"rank {os.environ['RANK']}" if os.environ.get("RANK") else ""


def process_name() -> str:
    """Return ``rank-3-4711`` or ``4711``, for file names."""
    return "-".join([*rank().split(), str(os.getpid())])


class Findings:
    """The verdicts of one tool.

    Args:
        tool: name of the tool.
        shown: number of failures to print during the run.
    """

    def __init__(self, tool: str, shown: int = 10) -> None:
        self.tool = tool
        self.shown = shown
        self.calls = 0
        self.failed: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        self.rows: list[dict[str, Any]] = []
        # Unbuffered, as a buffer does not admit the signal's close() during a write; reentrant for the same reason.
        self._file: FileIO | None = None
        self._lock = threading.RLock()

    def skip(self, operator: str, reason: str) -> None:
        """Record that an operator's calls are not judged, and why."""
        if operator not in self.skipped:
            self.skipped[operator] = reason
            self.write({"operator": operator, "skipped": reason})

    def count(self, operator: str) -> None:
        """Count a judged call."""
        self.calls += 1
        self.seen[operator] += 1

    def verdict(self, row: dict[str, Any], failed: bool) -> None:
        """Write a verdict; also print it if it is one of the first failures."""
        self.write({"verdict": "fail" if failed else "pass", **row})
        if not failed:
            return
        self.failed[row["operator"]] += 1
        if len(self.rows) < self.shown:
            self.rows.append(row)
            print_line(f"{self.tool}: {row['text']}")
        process_failed(self.tool)

    def write(self, row: dict[str, Any]) -> None:
        """Append a line to the tool's file; a line that follows `close` opens it again."""
        text = (json.dumps(row, default=str) + "\n").encode()
        while True:
            try:
                with self._lock:
                    self._open_file().write(text)
            except ValueError:
                # Closed meanwhile, by the signal that switches the tool off.
                continue
            return

    def _open_file(self) -> FileIO:
        file = self._file
        if file is None:
            file = self._file = FileIO(folder() / f"{self.tool}-{process_name()}.jsonl", "a")
            os.fchmod(file.fileno(), 0o640)
        return file

    def close(self) -> str:
        """Close the file and return a summary in one line."""
        where = ""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                where = f"; {file.name}"
                file.close()
        total = sum(self.failed.values())
        text = f"{self.tool}: {self.calls} calls of {len(self.seen)} operators judged, {total} failed"
        if total:
            text += " (" + ", ".join(f"{name} {count}" for name, count in self.failed.most_common(5)) + ")"
        if self.skipped:
            reasons = Counter(self.skipped.values())
            text += (
                f"; {len(self.skipped)} operators not judged ("
                + ", ".join(f"{reason}: {count}" for reason, count in reasons.most_common(3))
                + ")"
            )
        return text + where


_failed_tools: set[str] = set()


def process_failed(tool: str) -> None:
    """Make this process exit with status 3, whatever its program does."""
    _failed_tools.add(tool)


def has_failed() -> bool:
    """Return whether a tool found a failure in this process."""
    return bool(_failed_tools)


def reset() -> None:
    """Clear the failure of this process, for programs that handle failures themselves, and for tests."""
    _failed_tools.clear()


def _leave() -> None:
    if not _failed_tools:
        return
    print_line(f"{', '.join(sorted(_failed_tools))} found failures: exit status {EXIT_CODE}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)


atexit.register(_leave)
