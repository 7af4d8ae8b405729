"""Rich's classes for console output, imported without a change of Python's random generator.

``rich.style`` draws a number when it is imported, perhaps after the program has seeded the generator.
"""

# ruff: noqa: E402

import random

_state = random.getstate()
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

random.setstate(_state)

__all__ = [
    "BarColumn",
    "Console",
    "DownloadColumn",
    "MofNCompleteColumn",
    "Progress",
    "Table",
    "Text",
    "TextColumn",
    "TimeElapsedColumn",
    "TimeRemainingColumn",
    "TransferSpeedColumn",
]
