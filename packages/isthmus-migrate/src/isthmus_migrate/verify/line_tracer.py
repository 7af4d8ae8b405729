"""Trace of the watched lines that a program executes."""

import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from types import FrameType
from typing import Any


class LineTracer:
    """A tracer of files with watched lines, active until all these lines have been executed.

    Args:
        watched: file -> lines.
    """

    def __init__(self, watched: Mapping[str, list[int]]) -> None:
        self.executed: defaultdict[str, list[int]] = defaultdict(list)
        self._waiting = {path: set(lines) for path, lines in watched.items() if lines}

    def start(self) -> None:
        """Start tracing, including the functions on the stack."""
        if not self._waiting:
            return
        threading.settrace(self._function)
        sys.settrace(self._function)
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code.co_filename in self._waiting:
                frame.f_trace = self._line
                self._note(frame)
            frame = frame.f_back

    def _function(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in self._waiting:
            return None
        self._note(frame)
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._note(frame)
        return self._line

    def _note(self, frame: FrameType) -> None:
        path, line = frame.f_code.co_filename, frame.f_lineno
        waiting = self._waiting.get(path)
        if waiting is None or line not in waiting:
            return
        self.executed[path].append(line)
        waiting.remove(line)
        if not waiting:
            del self._waiting[path]
        if not self._waiting:
            sys.settrace(None)
            threading.settrace(None)
