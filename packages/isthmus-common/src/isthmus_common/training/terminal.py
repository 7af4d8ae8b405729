"""The terminal of a job: the lines of its ranks, and a status line below them."""

import io
import os
import shutil
import sys
import threading
from typing import TextIO


class Terminal:
    """Standard output and standard error of the job, and the status line.

    On a terminal the status line is refreshed in place, below the output of the ranks. Elsewhere it is omitted, or,
    with `prints_status`, each new one is a line of standard error.
    """

    def __init__(self, prints_status: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out, self._err = out or sys.stdout, err or sys.stderr
        for stream in (self._out, self._err):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # ranks may write any character
        self.is_live = self._err.isatty()
        self.prints_status = prints_status and not self.is_live
        self._status = ""
        self._lock = threading.RLock()

    def line(self, is_error: bool, text: str) -> None:
        """Print a line of a rank, on the stream on which the rank wrote it."""
        stream = self._err if is_error else self._out
        with self._lock:
            self._erase()
            _write(stream, text if text.endswith("\n") else f"{text}\n")
            self._draw()

    def print_line(self, text: str) -> None:
        """Print a line of the launcher."""
        self.line(True, f"isthmus: {text}")

    def block(self, text: str) -> None:
        """Print lines of the launcher in place of the status line."""
        with self._lock:
            self.end()
            self.line(True, f"isthmus: {text}")

    def status(self, text: str, is_new: bool) -> None:
        """Refresh the status line; without a terminal, print it if it is new."""
        with self._lock:
            if self.is_live and text != self._status:
                self._erase()
                self._status = text
                self._draw()
            elif self.prints_status and is_new and text:
                self.print_line(text)

    def end(self) -> None:
        """Leave the last status line in place, and continue below it."""
        with self._lock:
            if self._status:
                _write(self._err, "\n")
                self._status = ""

    def _erase(self) -> None:
        if self._status:
            _write(self._err, "\r\x1b[K")

    def _draw(self) -> None:
        if self._status:
            width = shutil.get_terminal_size().columns
            text = f"isthmus: {self._status}"
            _write(self._err, text if len(text) < width else f"{text[: width - 2]}…")


def _write(stream: TextIO, text: str) -> None:
    """Write at once. If the reader is gone, as after ``| head``, discard the text: the log files have it."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
