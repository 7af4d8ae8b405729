"""Show the progress of a build: ``python -u setup.py build_ext 2>&1 | python -m isthmus.binaries.progress LOG``.

All input is written to the log. A terminal shows one line, updated in place; other outputs get a line every 10 s.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

_LIBRARY = re.compile(r"building '(?P<library>[\w.]+)' extension")
_STEP = re.compile(r"\[(?P<done>\d+)/(?P<total>\d+)\] .* -c (?P<source>\S+)")
_INTERVAL_S = 10.0


def follow(lines: Iterable[str], log: TextIO, output: TextIO) -> None:
    """Copy the lines of a build to the log, and show the file being compiled."""
    library, shown = "", -_INTERVAL_S
    for line in lines:
        log.write(line)
        if found := _LIBRARY.match(line):
            library = found["library"]
        elif found := _STEP.match(line):
            source = re.sub(r".*?/(csrc|build/groups)/", "", found["source"])
            text = f"isthmus: building {library} {found['done']}/{found['total']} {source}"
            if output.isatty():
                print(f"\r\033[K{text}", end="", file=output, flush=True)
            elif time.monotonic() - shown >= _INTERVAL_S:
                shown = time.monotonic()
                print(text, file=output, flush=True)
    if output.isatty():
        print(end="\r\033[K", file=output, flush=True)


if __name__ == "__main__":
    with Path(sys.argv[1]).open("w") as log:
        follow(sys.stdin, log, sys.stdout)
