"""Runs one side of a comparison in processes of its own, under a limit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from isthmus._support import children
from isthmus._support.files import make_folder
from isthmus.launch.run import SITE, Job
from isthmus.migrate.verify import record
from isthmus.migrate.verify.record import Record, Request

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_KEPT = 40  # lines of what a side wrote to standard error
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt): ")
_OF_RANKS = re.compile(
    r"\b(?:LOCAL_RANK|RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_ADDR|MASTER_PORT)\b|--local[-_]rank"
)
_FRAME = 4  # lines of a traceback that show where the exception was raised, and the exception


@dataclass(frozen=True)
class Side:
    """One of the two programs that are compared.

    Attributes:
        name: for people.
        script: its path.
        arguments: of the script.
        root: its copy of the program's folder.
        folder: in which it runs.
        shim: whether it runs under the shim, so as it is.
        device: that it runs on; "" is the accelerator of this machine, ``cpu`` none.
        ranks: number of processes; 1 is the script alone.
    """

    name: str
    script: Path
    arguments: Sequence[str]
    root: Path
    folder: Path
    shim: bool
    device: str = ""
    ranks: int = 1

    def command(self, logs: Path) -> list[str]:
        """Command line of the first process; ranks write what they print into a folder of logs."""
        program = [str(self.script), *self.arguments]
        if self.ranks > 1:
            torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
            return [sys.executable, *torchrun, "--log-dir", str(logs), "--redirects=3", *program]
        return Job(program).command() if self.shim else [sys.executable, *program]

    def environment(self, records: Path, seed: int) -> dict[str, str]:
        """Environment of its processes."""
        path = os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH", ""))))
        changes = {
            "PYTHONPATH": path,
            "PYTHONHASHSEED": str(seed),
            "TORCHDYNAMO_DISABLE": "1",  # compiled code rounds otherwise
            record.VARIABLE: str(records),
        }
        environment = {**os.environ, **changes}
        if self.shim:
            return Job([str(self.script)], device=self.device, quiet=True, environ=environment).environment()
        if self.device == "cpu":
            environment["ISTHMUS_DRIVER"] = "none"
        return environment


class Run(NamedTuple):
    """What a side did.

    Attributes:
        side: which.
        status: of its first process; None if it was ended at the limit.
        seconds: that it took.
        output: what each rank printed, in lines.
        errors: the last lines that it wrote to standard error, of the rank that failed.
        processes: what was recorded of each process, by rank.
    """

    side: Side
    status: int | None
    seconds: float
    output: list[list[str]]
    errors: list[str]
    processes: Sequence[Record]

    @property
    def records(self) -> Sequence[Record]:
        """Of the processes that trained; of all if none did."""
        return [each for each in self.processes if each.trained] or self.processes

    @property
    def files(self) -> set[str]:
        """The program's files that were imported or run; its script at least."""
        return {str(self.side.script)}.union(*(each.files for each in self.processes))

    @property
    def needs_ranks(self) -> bool:
        """Whether it failed because it was started alone and asks a launcher's variables which rank it is."""
        alone = self.side.ranks == 1 and bool(self.status)
        return alone and any(_OF_RANKS.search(line) for line in self.errors[-_FRAME:])

    def failure(self) -> str:
        """Why it cannot be compared, in a line; "" if it can."""
        if self.status is None:
            return f"{self.side.name}: not done after {self.seconds:.0f} s; raise --timeout or lower --steps"
        if self.status:
            said = f"{self.side.name}: ended with status {self.status}: {self.cause()}"
            return f"{said}; a script that a launcher starts needs --nproc 2" if self.needs_ranks else said
        return ""

    def cause(self) -> str:
        """The last exception, or the last line that says something."""
        said = [line for line in self.errors if line.strip() and not line.startswith((" ", "isthmus:"))]
        exceptions = [line for line in said if _EXCEPTION.match(line)]
        return (exceptions or said or self.errors or ["it said nothing"])[-1]


@dataclass
class Runner:
    """Runs sides one after the other.

    Args:
        scratch: folder for records and logs.
        request: what is recorded; the folder and the watched lines are those of each side.
        timeout: seconds for one side.
    """

    scratch: Path
    request: Request
    timeout: float
    _number: int = field(default=0, init=False)

    def run(self, side: Side, watched: dict[str, list[int]] | None = None) -> Run:
        """Run a side to its end, or to the limit."""
        self._number += 1
        folder = self.scratch / f"run-{self._number}"
        records, logs = folder / "records", folder / "logs"
        make_folder(records)
        make_folder(logs)
        self.request._replace(root=str(side.root), watched=watched or {}).write(records)
        began = time.monotonic()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                side.command(logs),
                cwd=side.folder,
                env=side.environment(records, self.request.seed),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            status = _wait(process, self.timeout)
        seconds = time.monotonic() - began
        output, errors = _of_ranks(logs, side.ranks) if side.ranks > 1 else ([_lines(folder / "out")], [])
        errors = [line for line in errors if line.strip()] or _lines(folder / "err")
        return Run(side, status, seconds, output, errors[-_KEPT:], record.read(records))


def accelerator() -> str:
    """Type of the accelerator that programs find here; ``cpu`` where there is none or PyTorch does not say."""
    records = children.run(f"{__name__}:found_in_child").records
    return str(records[0]["type"]) if records else "cpu"


def found_in_child() -> Iterator[dict[str, str]]:
    """In a child process: the type of PyTorch's accelerator."""
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    yield {"type": device.type if device else "cpu"}


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int | None:
    """Its status; None if it had to be ended."""
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _of_ranks(logs: Path, ranks: int) -> tuple[list[list[str]], list[str]]:
    """What each rank printed, and the errors of the first that has any to show."""
    output: list[list[str]] = []
    errors: list[str] = []
    for rank in range(ranks):
        output.append(_lines(*logs.glob(f"*/attempt_0/{rank}/stdout.log")))
        said = _lines(*logs.glob(f"*/attempt_0/{rank}/stderr.log"))
        if any("Error" in line for line in said) or not errors:
            errors = said
    return output, errors


def _lines(*paths: Path) -> list[str]:
    text = "".join(path.read_bytes().decode(errors="replace") for path in paths if path.is_file())
    return _COLOUR.sub("", text).replace("\r", "\n").splitlines()
