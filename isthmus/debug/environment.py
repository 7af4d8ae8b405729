"""ISTHMUS_DEBUG: tools that are on from the first operator of a process."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path


def start() -> None:
    """Start what ISTHMUS_DEBUG lists. A request that cannot be carried out ends the process with status 2."""
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
