"""Tools enabled from the start of a process, by ISTHMUS_DEBUG and ISTHMUS_STREAM_CHECK."""

import atexit
import sys
from pathlib import Path

from isthmus_diagnostics.options import TABLE


def start() -> None:
    """Start the tools named by the environment; an invalid value exits with status 2."""
    _start_stream_check()
    text = TABLE.text("debug")
    if calls := TABLE.text("debug_calls"):
        from isthmus_diagnostics.debug import called_operators

        atexit.register(called_operators.write, Path(calls))
    if not text:
        return
    from isthmus_diagnostics.debug import sessions
    from isthmus_diagnostics.debug.errors import DebugError

    try:
        sessions.start_listed(text)
    except DebugError as error:
        print(f"isthmus: ISTHMUS_DEBUG: {error}", file=sys.stderr)
        sys.exit(2)


def _start_stream_check() -> None:
    mode = TABLE.text("stream_check")
    if mode == "0":
        return
    from isthmus_diagnostics.debug import streams

    streams.check(True, raises=mode == "1")


def listen() -> None:
    """Let `isthmus debug` attach to this process, if the chip is its device."""
    import torch

    from isthmus_diagnostics import debug

    if hasattr(getattr(torch, "chip", None), "set_route"):
        debug.listen()
