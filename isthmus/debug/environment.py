"""ISTHMUS_DEBUG and ISTHMUS_STREAM_CHECK: tools that are on from the first operator of a process."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path


def start() -> None:
    """Start what the environment asks for. A request that cannot be carried out ends the process with status 2."""
    _start_stream_check(os.environ.get("ISTHMUS_STREAM_CHECK", ""))
    text = os.environ.get("ISTHMUS_DEBUG", "")
    if calls := os.environ.get("ISTHMUS_DEBUG_CALLS"):
        from isthmus.debug import called

        atexit.register(called.write, Path(calls))
    if not text:
        return
    from isthmus.debug import sessions
    from isthmus.debug.errors import DebugError

    try:
        sessions.start_listed(text)
    except DebugError as error:
        print(f"isthmus: ISTHMUS_DEBUG: {error}", file=sys.stderr)
        sys.exit(2)


def _start_stream_check(mode: str) -> None:
    if mode in ("", "0"):
        return
    if mode not in ("1", "warn"):
        print(f"isthmus: ISTHMUS_STREAM_CHECK={mode}: set it to 0, 1 or warn", file=sys.stderr)
        sys.exit(2)
    from isthmus.debug import streams

    streams.check(True, raises=mode == "1")
