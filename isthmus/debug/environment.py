"""Tools enabled from the start of a process, by ISTHMUS_DEBUG and ISTHMUS_STREAM_CHECK."""

import atexit
import sys
from pathlib import Path

from isthmus import options


def start() -> None:
    """Start the tools named by the environment; an invalid value exits with status 2."""
    _start_stream_check()
    text = options.text("debug")
    if calls := options.text("debug_calls"):
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


def _start_stream_check() -> None:
    mode = options.text("stream_check")
    if mode == "0":
        return
    from isthmus.debug import streams

    streams.check(True, raises=mode == "1")
