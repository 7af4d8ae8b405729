"""A dump from the start of a process, by ISTHMUS_DUMP and the options beside it."""

import atexit
from pathlib import Path

from isthmus import options
from isthmus.accuracy.recorder import Recorder, Selection


def start() -> None:
    """Start to record, until the process ends."""
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
