"""A dump and a monitor from the start of a process, by ISTHMUS_DUMP, the options beside it, and ISTHMUS_MONITOR."""

import atexit
from pathlib import Path

from isthmus import options
from isthmus.accuracy.recorder import Recorder, Selection


def start() -> None:
    """Start what the options ask for, until the process ends."""
    if folder := options.text("monitor"):
        from isthmus.accuracy.monitoring import Monitor

        atexit.register(Monitor(Path(folder)).start().stop)
    if options.text("dump"):
        _dump()


def _dump() -> None:
    selection = Selection(
        options.text("dump"),
        options.text("dump_level"),
        options.numbers(options.text("dump_steps")),
        options.numbers(options.text("dump_ranks")),
        options.text("dump_scope"),
    )
    recorder = Recorder(Path(options.text("dump_dir")), selection)
    recorder.start()
    atexit.register(recorder.stop)
