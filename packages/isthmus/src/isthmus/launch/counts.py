"""The work of the processes of a job on the device.

Child processes append their counts to a file, a line of JSON each, when they end by themselves. The program of the
job adds them to its own and prints the sum.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus import options

if TYPE_CHECKING:
    from isthmus.shim.accelerator import Accelerator


@dataclass
class Counts:
    """Counts of one process, or of several.

    Attributes:
        operators: route of each operator that was called, by name.
        set_device: changes of the current device.
        peak: most bytes that a process held on a device.
    """

    operators: dict[str, str] = field(default_factory=dict)
    set_device: int = 0
    peak: int = 0

    @staticmethod
    def of_process(accelerator: Accelerator) -> Counts:
        """Those of this process; without operators if the accelerator does not count them."""
        import torch

        stats = getattr(accelerator.module, "dispatch_stats", None)
        found: dict[str, Any] = stats() if stats else {"operators": {}, "set_device": 0}
        operators = {name: entry["route"] for name, entry in found["operators"].items()}
        devices = range(torch.accelerator.device_count())
        peak = max((torch.accelerator.max_memory_allocated(index) for index in devices), default=0)
        return Counts(operators, found["set_device"], peak)

    def add(self, other: Counts) -> None:
        """Add the counts of another process."""
        self.operators = {**other.operators, **self.operators}
        self.set_device += other.set_device
        self.peak = max(self.peak, other.peak)


def collect() -> None:
    """Let child processes report to this process, which runs the job's program."""
    descriptor, path = tempfile.mkstemp(prefix="isthmus-counts-")
    os.close(descriptor)
    os.environ[options.variable("counts")] = path


def collected_counts() -> Iterator[Counts]:
    """Counts of the child processes that have ended; removes the file."""
    path = Path(options.text("counts"))
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text().splitlines():
            yield Counts(**json.loads(line))
        path.unlink()


class Reporter:
    """Reports the counts of this process when it ends, if it is a child, and of processes forked from it."""

    def __init__(self, accelerator: Accelerator, is_child: bool) -> None:
        from multiprocessing import util

        self._accelerator = accelerator
        if is_child:
            self._register()
        util.register_after_fork(self, Reporter._register)

    def _register(self) -> None:
        # multiprocessing ends its children by os._exit, which skips atexit; in other processes atexit calls it.
        from multiprocessing import util

        util.Finalize(None, self._report, exitpriority=0)

    def _report(self) -> None:
        """Append the counts; nothing if the device was not used by this process."""
        module = self._accelerator.module
        if not module.is_initialized() or module._is_in_bad_fork():
            return
        line = json.dumps(vars(Counts.of_process(self._accelerator))) + "\n"
        with contextlib.suppress(FileNotFoundError):  # the job's program has ended
            descriptor = os.open(options.text("counts"), os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, line.encode())
            os.close(descriptor)
