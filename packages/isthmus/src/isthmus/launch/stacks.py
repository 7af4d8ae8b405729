"""Stacks of running ranks: on a signal of the launcher, faulthandler writes the stack to standard error."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

SIGNAL = signal.SIGRTMIN + 7
START = "Stack (most recent call first):"
FRAMES = ("  File ", "  <", "  ...")  # "  <no Python frame>"
CRASH = re.compile(r"^Current thread 0x\w+ .*\(most recent call first\):$", re.MULTILINE)  # at a fatal signal
_LAUNCHER = f'  File "{Path(__file__).parent / "main.py"}"'
_PATIENCE = 1.0  # seconds


def listen() -> None:
    """Let this process write the main thread's stack on that signal."""
    import faulthandler

    # A program may have closed or replaced its standard error.
    with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
        faulthandler.register(SIGNAL, all_threads=False)


def last_stack(text: str) -> list[str]:
    """Frames of the last stack in a text, innermost first, without those of the launcher; [] without one."""
    crashes = [found.end() for found in CRASH.finditer(text)]
    start = max(text.rfind(START) + len(START) if START in text else -1, crashes[-1] if crashes else -1)
    frames = text[start:].splitlines()[1:] if start >= 0 else []
    ends = (i for i, line in enumerate(frames) if not line.startswith("  ") or line.startswith(_LAUNCHER))
    return frames[: next(ends, len(frames))]


def ask(ranks: dict[int, Path]) -> None:
    """Make the processes that listen write their stacks, and wait for these, for a second at most.

    Args:
        ranks: the standard error file of each process.
    """
    asked = {}
    for process, path in ranks.items():
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            if _is_listening(process):
                os.kill(process, SIGNAL)
                asked[path] = size
    end = time.monotonic() + _PATIENCE
    while any(path.stat().st_size == size for path, size in asked.items()) and time.monotonic() < end:
        time.sleep(0.02)


def _is_listening(process: int) -> bool:
    """Whether the process catches the signal, which would end it otherwise."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (SIGNAL - 1) & 1)
