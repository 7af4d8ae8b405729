"""Finding a wrong operator in a running job: compare, capture, fallback, overflow, time.

    with isthmus.debug.compare("aten::*mm*"):
        loss.backward()

Each is switched on for a pattern of operators, by a context manager here, by ``ISTHMUS_DEBUG`` for a whole job, or by
``isthmus debug PID`` from outside. Off, nothing of it is on the path of a call.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.debug.errors import DebugError

if TYPE_CHECKING:
    from isthmus.debug.sessions import Session

__all__ = [
    "DebugError",
    "capture",
    "compare",
    "fallback",
    "overflow",
    "listen",
    "status",
    "stop_all",
    "time",
]


def compare(pattern: str = "*", shown: int = 10) -> Session:
    """Run each call beside the float64 reference on CPU and judge every element.

    Args:
        pattern: of operators, such as ``aten::mm`` or ``*softmax*``.
        shown: how many failures are printed as they come.

    Returns:
        A context manager, also with ``start()`` and ``stop()``. A failure makes the process end with status 3.
    """
    return _make("compare", pattern, shown=shown)


def capture(
    pattern: str, folder: str | Path | None = None, calls: int = 16, nbytes: int = 1 << 30
) -> Session:
    """Save arguments and results of calls, for ``isthmus replay``.

    Args:
        pattern: of operators.
        folder: where; ``capture`` in ISTHMUS_DEBUG_FOLDER if not given.
        calls: how many of each operator.
        nbytes: of all calls together.
    """
    return _make("capture", pattern, folder=Path(folder) if folder else None, calls=calls, nbytes=nbytes)


def fallback(pattern: str) -> Session:
    """Run the operators on copies on the CPU (``torch.chip.set_route(pattern, "fallback")``)."""
    return _make("fallback", pattern)


def overflow(pattern: str = "*", shown: int = 3) -> Session:
    """Find the first call that makes NaN or infinity of finite inputs."""
    return _make("overflow", pattern, shown=shown)


def time(pattern: str = "*") -> Session:
    """Count and time calls, with the stream synchronised around each."""
    return _make("time", pattern)


def status() -> list[str]:
    """What is switched on, one line each."""
    from isthmus.debug import sessions

    return [f"{s.tool} {s.pattern} ({len(s.operators)} overloads)" for s in sessions.sessions()]


def stop_all() -> str:
    """Switch everything off; the summaries."""
    from isthmus.debug import sessions

    return sessions.stop_all()


def listen() -> None:
    """Let ``isthmus debug PID`` reach this process, as under ``isthmus run``. Main thread only."""
    from isthmus.debug import control

    control.install()


def _make(tool: str, pattern: str, **limits: object) -> Session:
    from isthmus.debug import sessions  # with torch; this package itself imports none

    return sessions.make(tool, pattern, **limits)
