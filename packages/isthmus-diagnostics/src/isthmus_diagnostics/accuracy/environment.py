"""A dump and a monitor from the start of a process, by ISTHMUS_DUMP, the options beside it, and ISTHMUS_MONITOR."""

import atexit
from pathlib import Path

from isthmus_common.options import numbers
from isthmus_diagnostics.accuracy.recorder import Recorder, Selection
from isthmus_diagnostics.options import TABLE


def start() -> None:
    """Start what the options ask for, until the process ends."""
    if folder := TABLE.text("monitor"):
        from isthmus_diagnostics.accuracy.monitoring import Monitor

        atexit.register(Monitor(Path(folder)).start().stop)
    if TABLE.text("dump"):
        _dump()


def _dump() -> None:
    selection = Selection(
        TABLE.text("dump"),
        TABLE.text("dump_level"),
        numbers(TABLE.text("dump_steps")),
        numbers(TABLE.text("dump_ranks")),
        TABLE.text("dump_scope"),
    )
    recorder = Recorder(Path(TABLE.text("dump_dir")), selection)
    recorder.start()
    atexit.register(recorder.stop)
