"""Runs one side of a comparison in separate processes with a time limit."""

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

from isthmus.launch.run import SITE, Job
from isthmus_common import children
from isthmus_common.files import make_folder
from isthmus_migrate.verify import record, scratch
from isthmus_migrate.verify.record import Record, Request

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_KEPT = 40  # last lines of standard error
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt): ")
_OF_RANKS = re.compile(
    r"\b(?:LOCAL_RANK|RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_ADDR|MASTER_PORT)\b|--local[-_]rank"
)
_FRAME = 4  # lines of a traceback that show where the exception was raised, and the exception


@dataclass(frozen=True)
class Side:
    """One of the two compared programs.

    Attributes:
        name: name in messages.
        script: path of the script.
        arguments: arguments of the script.
        root: copy of the program's folder.
        folder: working directory.
        shim: run unchanged under the shim.
        device: device to run on; "" is the accelerator of this machine, ``cpu`` none.
        ranks: number of processes; 1 runs the script without torchrun.
        module: name of the module to run with ``-m`` instead of the script, which is its file; "" for none.
    """

    name: str
    script: Path
    arguments: Sequence[str]
    root: Path
    folder: Path
    shim: bool
    device: str = ""
    ranks: int = 1
    module: str = ""

    def command(self, logs: Path) -> list[str]:
        """Return the command line of the first process; the output of ranks goes to a folder of logs."""
        program = [*(["-m", self.module] if self.module else [str(self.script)]), *self.arguments]
        if self.ranks > 1:
            torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
            return [sys.executable, *torchrun, "--log-dir", str(logs), "--redirects=3", *program]
        return Job(program).command() if self.shim else [sys.executable, *program]

    def environment(self, records: Path, seed: int) -> dict[str, str]:
        """Return the environment of its processes."""
        path = os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH", ""))))
        changes = {
            "PYTHONPATH": path,
            "PYTHONHASHSEED": str(seed),
            "TORCHDYNAMO_DISABLE": "1",  # compiled code rounds differently
            record.VARIABLE: str(records),
        }
        environment = {**os.environ, **changes}
        if self.shim:
            given = {"device": self.device, "quiet": "1"}
            return Job([str(self.script)], given, environ=environment).environment()
        if self.device == "cpu":
            environment["ISTHMUS_DRIVER"] = "none"
        return environment


class Run(NamedTuple):
    """The run of a side.

    Attributes:
        side: the side.
        status: exit status of its first process; None if it timed out.
        seconds: duration.
        output: printed lines of each rank.
        errors: last lines of standard error of the failed rank.
        processes: records of the processes, by rank.
        written: files that it wrote into the program's folder, relative to it.
        lines_of_errors: number of lines on standard error.
    """

    side: Side
    status: int | None
    seconds: float
    output: list[list[str]]
    errors: list[str]
    processes: Sequence[Record]
    written: frozenset[str] = frozenset()
    lines_of_errors: int = 0

    @property
    def records(self) -> Sequence[Record]:
        """Records of the processes that trained, or of all if none did."""
        return [each for each in self.processes if each.trained] or self.processes

    @property
    def files(self) -> set[str]:
        """Files of the program that were imported or run, including the script."""
        return {str(self.side.script)}.union(*(each.files for each in self.processes))

    @property
    def needs_ranks(self) -> bool:
        """Whether it failed because it needs the environment variables of a launcher."""
        alone = self.side.ranks == 1 and bool(self.status)
        return alone and any(_OF_RANKS.search(line) for line in self.errors[-_FRAME:])

    def failure(self) -> str:
        """Return why the run cannot be compared in one line, or ""."""
        if self.status is None:
            return f"{self.side.name}: timed out after {self.seconds:.0f} s; raise --timeout or lower --steps"
        if self.status:
            said = f"{self.side.name}: ended with status {self.status}: {self.cause()}"
            return f"{said}; a script that a launcher starts needs --nproc 2" if self.needs_ranks else said
        return ""

    def cause(self) -> str:
        """Return the last exception, or the last line that is not empty."""
        said = [line for line in self.errors if line.strip() and not line.startswith((" ", "isthmus:"))]
        exceptions = [line for line in said if _EXCEPTION.match(line)]
        return (exceptions or said or self.errors or ["no error output"])[-1]


@dataclass
class Runner:
    """Runs sides one after the other.

    Args:
        folder: folder for records and logs.
        request: the request; folder and watched lines are set for each side.
        timeout: time limit of a side, in seconds.
    """

    folder: Path
    request: Request
    timeout: float
    _number: int = field(default=0, init=False)

    def run(self, side: Side, watched: dict[str, list[int]] | None = None, noise: int = 0) -> Run:
        """Run a side until it exits or times out.

        Args:
            side: the side.
            watched: file -> lines that refer to CUDA.
            noise: units in the last place by which the results of rounding operators are off.
        """
        self._number += 1
        folder = self.folder / f"run-{self._number}"
        records, logs = folder / "records", folder / "logs"
        make_folder(records)
        make_folder(logs)
        self.request._replace(root=str(side.root), watched=watched or {}, noise=noise).write(records)
        prepared = max((path.stat().st_mtime_ns for path in records.iterdir()), default=0)
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
        written = frozenset(scratch.written_since(prepared, side.root))
        said = sum(bool(line.strip()) and not line.startswith("isthmus:") for line in errors)
        return Run(side, status, seconds, output, errors[-_KEPT:], record.read(records), written, said)


def accelerator() -> str:
    """Return the type of this machine's accelerator, or ``cpu``."""
    records = children.run(f"{__name__}:found_in_child").records
    return str(records[0]["type"]) if records else "cpu"


def found_in_child() -> Iterator[dict[str, str]]:
    """Yield the type of PyTorch's accelerator, in a child process."""
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    yield {"type": device.type if device else "cpu"}


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int | None:
    """Wait for a process; return its status, or None after killing it at the time limit."""
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _of_ranks(logs: Path, ranks: int) -> tuple[list[list[str]], list[str]]:
    """Return the output of each rank, and the errors of the first rank that has any."""
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
