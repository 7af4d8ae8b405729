"""Tools that find a wrong operator in a running job: compare, capture, fallback, overflow, time.

    with isthmus_diagnostics.debug.compare("aten::*mm*"):
        loss.backward()

A tool is enabled for a pattern of operators: by a context manager of this package, for a whole job by
``ISTHMUS_DEBUG``, or from outside by ``isthmus debug PID``. A disabled tool adds no work to a call.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from isthmus_diagnostics.debug.errors import DebugError

if TYPE_CHECKING:
    from isthmus_diagnostics.debug.sessions import Session

__all__ = ["DebugError", "capture", "compare", "fallback", "overflow", "listen", "status", "stop_all", "time"]


def compare(pattern: str = "*", shown: int = 10) -> Session:
    """Compare every element of each call's results with a float64 reference on CPU.

    Args:
        pattern: operators, such as ``aten::mm`` or ``*softmax*``.
        shown: number of failures to print during the run.

    Returns:
        A context manager, also with ``start()`` and ``stop()``. After a failure the process exits with status 3.
    """
    return _make("compare", pattern, shown=shown)


def capture(
    pattern: str, folder: str | Path | None = None, calls: int = 16, nbytes: int = 1 << 30
) -> Session:
    """Save arguments and results of calls, for ``isthmus replay``.

    Args:
        pattern: operators.
        folder: destination; by default ``capture`` in ISTHMUS_DEBUG_FOLDER.
        calls: limit of calls per operator.
        nbytes: limit of bytes of all calls together.
    """
    return _make("capture", pattern, folder=Path(folder) if folder else None, calls=calls, nbytes=nbytes)


def fallback(pattern: str) -> Session:
    """Run the operators on copies on the CPU (``torch.chip.set_route(pattern, "fallback")``)."""
    return _make("fallback", pattern)


def overflow(pattern: str = "*", shown: int = 3) -> Session:
    """Find the first call that produces NaN or infinity from finite inputs."""
    return _make("overflow", pattern, shown=shown)


def time(pattern: str = "*") -> Session:
    """Count and time calls, with the stream synchronised around each."""
    return _make("time", pattern)


def status() -> list[str]:
    """Return one line per enabled tool."""
    from isthmus_diagnostics.debug import sessions

    return [f"{s.tool} {s.pattern} ({len(s.operators)} overloads)" for s in sessions.sessions()]


def stop_all() -> str:
    """Disable all tools and return their summaries."""
    from isthmus_diagnostics.debug import sessions

    return sessions.stop_all()


def listen() -> None:
    """Accept requests of ``isthmus debug PID``, as under ``isthmus run``. Main thread only."""
    from isthmus_diagnostics.debug import control

    control.install()


def _make(tool: str, pattern: str, **limits: object) -> Session:
    from isthmus_diagnostics.debug import sessions  # imports torch, unlike this package itself

    return sessions.make(tool, pattern, **limits)
