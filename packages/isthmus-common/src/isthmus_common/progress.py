"""Progress of long commands on standard error.

Rich is imported by the first bar, not with this module: ``say`` is used inside programs, and a program that imports
Rich itself draws a number of Python's random generator then, as it does without Isthmus.
"""

import sys
import time
from typing import Self

_LOG_SECONDS = 30.0  # between two lines where there is no terminal


def say(line: str) -> None:
    """Print a line to standard error, with the name of the program."""
    print(f"isthmus: {line}", file=sys.stderr, flush=True)


class Bar:
    """A progress bar on standard error; a line every 30 s when that is not a terminal.

    Args:
        description: the current item.
        of_bytes: the numbers are bytes; shows their rate and the time left.
    """

    def __init__(self, description: str, *, of_bytes: bool = False) -> None:
        from isthmus_common import console as rich

        self._console = rich.Console(stderr=True)
        figures = (
            (rich.DownloadColumn(), rich.TransferSpeedColumn(), rich.TimeRemainingColumn())
            if of_bytes
            else (rich.MofNCompleteColumn(), rich.TimeElapsedColumn())
        )
        columns = (rich.TextColumn("{task.description}", markup=False), rich.BarColumn(), *figures)
        self._progress = rich.Progress(
            *columns, console=self._console, transient=True, disable=not sys.stderr.isatty()
        )
        self._task = self._progress.add_task(description, total=None)
        self._start = self._logged = time.monotonic()

    def at(self, name: str, done: int, total: int) -> None:
        """Show the current item and how many of all are done."""
        self._progress.update(self._task, description=name, completed=done, total=total)
        self._log()

    def count(self, done: int, total: int) -> None:
        """Show how many of all items are done; with the last one the bar is removed."""
        self._progress.update(self._task, completed=done, total=total)
        self._log()
        if done == total:
            self._stop()

    def advance(self, name: str) -> None:
        """Show the current item and count one more as done."""
        self._progress.update(self._task, description=name, advance=1)
        self._log()

    def print(self, line: str) -> None:
        """Print a line above the bar, whether or not the bar is shown."""
        from isthmus_common.console import Text

        self._console.print(Text(line), soft_wrap=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _log(self) -> None:
        """Print a line if no bar is shown and the last line is old."""
        now = time.monotonic()
        if self._progress.disable and now - self._logged >= _LOG_SECONDS:
            self._logged = now
            task = self._progress.tasks[self._task]
            done = f"{task.completed:.0f}" if task.total is None else f"{task.percentage:.0f} %"
            say(f"{task.description}: {done} done after {now - self._start:.0f} s")

    def _stop(self) -> None:
        if not self._progress.disable:  # Rich before 15 prints an empty line then
            self._progress.stop()
