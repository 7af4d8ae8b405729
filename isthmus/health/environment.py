"""The watch from the start of a process, by ISTHMUS_HEALTH and the options beside it."""

import atexit
from pathlib import Path

from isthmus import options
from isthmus.health.session import Health


def start() -> None:
    """Start to watch, until the process ends."""
    timeout = options.integer("health_timeout")
    assert timeout is not None
    atexit.register(Health(Path(options.text("health_dir")), timeout=timeout).start().stop)
