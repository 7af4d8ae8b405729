"""Sessions: the tools enabled in this process, each for a pattern of operators."""

import atexit
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from isthmus_common import files
from isthmus_diagnostics.debug import intercept, record
from isthmus_diagnostics.debug.capturing import Capture
from isthmus_diagnostics.debug.comparison import Compare
from isthmus_diagnostics.debug.errors import DebugError
from isthmus_diagnostics.debug.overflows import Overflow
from isthmus_diagnostics.debug.timing import Time

TOOLS = ("compare", "capture", "fallback", "overflow", "time")


@dataclass(eq=False)
class Session:
    """A tool enabled for the operators of a pattern. A context manager; leaving it disables the tool.

    Attributes:
        tool: one of :data:`TOOLS`.
        pattern: operators.
        operators: the matching overloads.
        probe: the tool's object with its findings; None for fallback.
    """

    tool: str
    pattern: str
    operators: tuple[str, ...] = ()
    probe: Any = None
    running: bool = field(default=False, repr=False)
    before: int = field(default=0, repr=False)
    summary: str = ""

    def start(self) -> Self:
        """Enable the tool in all threads. Must not be called from inside an operator.

        Raises:
            DebugError: the pattern matches no operator.
        """
        if not self.running:
            if self.tool == "fallback":
                self.before = _fallback_calls()
                self._force("fallback")
            else:
                self.operators = tuple(_overloads(self.pattern))
                intercept.watch(self.probe, list(self.operators))
            self.running = True
            _sessions.append(self)
        return self

    def stop(self) -> str:
        """Disable the tool, restore the previous kernels, and return the summary in one or more lines."""
        if self.running:
            self.running = False
            _sessions.remove(self)
            if self.tool == "fallback":
                self._force("")
            else:
                intercept.forget(self.probe)
            self.summary = self.report()
        return self.summary

    def report(self) -> str:
        """Return the findings so far in one or more lines."""
        return _REPORTS[self.tool](self)

    def _force(self, route: str) -> None:
        try:
            for pattern in _file_patterns(self.pattern):
                _chip().set_route(pattern, route)
        except ValueError as error:
            raise DebugError(str(error)) from None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


_sessions: list[Session] = []


def sessions() -> tuple[Session, ...]:
    """Return the enabled sessions."""
    return tuple(_sessions)


def make(tool: str, pattern: str, **limits: Any) -> Session:
    """Make a session without starting it.

    Args:
        tool: one of :data:`TOOLS`.
        pattern: operators, such as ``aten::*mm*``; for fallback also ``@file`` with one pattern per line.
        limits: of the tool: ``shown`` (compare, overflow), ``folder``, ``calls``, ``nbytes`` (capture).

    Raises:
        DebugError: unknown tool.
    """
    if tool not in TOOLS:
        raise DebugError(f"unknown tool {tool!r}; expected one of {', '.join(TOOLS)}")
    return Session(tool, pattern, probe=_PROBES[tool](limits))


def stop_all() -> str:
    """Disable all tools and return their summaries."""
    return "\n".join(session.stop() for session in reversed(sessions()))


def start_listed(text: str) -> list[Session]:
    """Start the tools listed in ISTHMUS_DEBUG: ``compare:aten::*mm*,overflow:*``.

    Raises:
        DebugError: an item is not ``tool:pattern`` or cannot be started; no tool is enabled then.
    """
    started: list[Session] = []
    try:
        for item in filter(None, (part.strip() for part in text.split(","))):
            tool, colon, pattern = item.partition(":")
            if not colon or not pattern:
                raise DebugError(f"{item!r} is not tool:pattern, such as compare:aten::*mm*")
            started.append(make(tool, pattern).start())
    except DebugError:
        for session in started:
            session.stop()
        raise
    return started


def _overloads(pattern: str) -> list[str]:
    try:
        return intercept.overloads(pattern)
    except intercept.NoOperator as error:
        raise DebugError(str(error)) from None


def _file_patterns(pattern: str) -> list[str]:
    if not pattern.startswith("@"):
        return [pattern]
    try:
        return Path(pattern[1:]).read_text().split()
    except OSError as error:
        raise DebugError(f"{pattern[1:]}: cannot be read: {error.strerror}") from None


def _time_report(session: Session) -> str:
    rows = [row._asdict() for row in session.probe.rows()]
    path = record.folder() / f"time-{record.process_name()}.json"
    files.write_file(path, json.dumps(rows, indent=1).encode())
    return f"time: {sum(row['calls'] for row in rows)} calls; {path}\n{session.probe.table()}"


def _fallback_report(session: Session) -> str:
    calls = _fallback_calls() - session.before
    return f"fallback: {session.pattern}: {calls} calls ran on CPU copies (of all operators on that route)"


def _fallback_calls() -> int:
    return int(_chip().dispatch_stats()["calls"].get("fallback", 0))


def _chip() -> Any:
    import torch

    return getattr(torch, "chip")  # noqa: B009 - this package puts it there


_REPORTS: dict[str, Callable[[Session], str]] = {
    "compare": lambda session: session.probe.findings.close(),
    "overflow": lambda session: session.probe.findings.close(),
    "capture": lambda session: session.probe.summary(),
    "time": _time_report,
    "fallback": _fallback_report,
}
_PROBES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "compare": lambda limits: Compare(record.Findings("compare", **limits)),
    "overflow": lambda limits: Overflow(record.Findings("overflow", **limits)),
    "capture": lambda limits: Capture(**{"folder": None, **limits}),
    "time": lambda limits: Time(**limits),
    "fallback": lambda limits: None,
}


def _at_exit() -> None:
    if not _sessions or not _chip().is_initialized():  # a launcher only passes the variable to its children
        return
    for session in sessions():
        for line in session.stop().splitlines():
            record.print_line(line)


atexit.register(_at_exit)  # after record's, so that it runs before
