"""``isthmus run``: builds the command and the environment of a job, then becomes it."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from isthmus import options
from isthmus.launch.process import MAIN
from isthmus.launch.ranks import AGENT, JobError, Ranks, threads
from isthmus.stand_ins import provide
from isthmus_common.options import job_variables

__all__ = ["SITE", "Job", "JobError", "check_driver"]

SITE = Path(__file__).parent / "site"
PROGRAM_OPTIONS = ("-m", "-c")


@dataclass(frozen=True)
class Job:
    """A job to run.

    Attributes:
        program: ``script.py``, ``-m module``, ``-c command`` or a command such as ``torchrun``, with arguments.
        given: values of flags by their option, as ``{"device": "chip:1", "quiet": "1"}``; "" is not given.
        ranks: how to run it as several processes; None runs one, which this process becomes.
        provide: modules to provide where the real ones are absent, ``flash_attn,apex``; "" is none.
        environ: variables of this process.
    """

    program: list[str]
    given: Mapping[str, str] = field(default_factory=dict)
    ranks: Ranks | None = None
    provide: str = ""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def environment(self) -> dict[str, str]:
        """Environment of the job: its Python processes and their children find the shim by it.

        Raises:
            JobError: a flag is wrong, or what is to be provided cannot be.
        """
        try:
            provided = provide.folders(self.provide)
        except ValueError as error:
            raise JobError(f"--provide: {error}") from None
        path = self.environ.get("PYTHONPATH", "")
        first = [str(SITE), *provided]
        others = [entry for entry in path.split(os.pathsep) if entry and entry not in first]
        changes = {"ISTHMUS_SHIM": "1", "PYTHONPATH": os.pathsep.join([*first, *others])}
        try:
            changes |= job_variables(self.given, self.environ)
        except ValueError as error:
            raise JobError(str(error)) from None
        if self.ranks and (self.ranks.number or 0) > 1 and "OMP_NUM_THREADS" not in self.environ:
            changes["OMP_NUM_THREADS"] = threads(self.ranks.number or 1)  # torchrun would make it 1
        return {**self.environ, **changes}

    def command(self) -> list[str]:
        """Command line of the job's first process.

        Raises:
            JobError: the program does not exist, or cannot be run as several processes.
        """
        if not self.program:
            raise JobError(
                "nothing to run; give a script, -m module, -c command or a command such as torchrun"
            )
        kind = self.program[0]
        if kind in PROGRAM_OPTIONS and len(self.program) < 2:
            raise JobError(f"{kind} needs a value")
        if self.ranks:
            return self._agent(self.ranks)
        if kind in PROGRAM_OPTIONS or Path(kind).exists():
            return [sys.executable, "-m", MAIN, *self.program]
        return [_find_command(kind), *self.program[1:]]

    def _agent(self, ranks: Ranks) -> list[str]:
        """Command of the process that starts the ranks of this node, with a new folder for their logs."""
        kind = self.program[0]
        ranks.check()
        check_driver(self.given.get("driver") or options.text("driver", self.environ))
        if kind == "-c":
            raise JobError("--nproc runs a script or a module; -c has no file for the other processes to run")
        if kind != "-m" and not Path(kind).is_file():
            raise JobError(f"{kind}: no such script; --nproc runs a script or a module")
        name = self.program[1] if kind == "-m" else Path(kind).stem
        agent = ["--folder", str(ranks.make_folder(name)), "--nproc", ranks.nproc]
        if ranks.shown:
            agent += ["--shown", ranks.shown]
        if ranks.peak_tflops:
            agent += ["--peak-tflops", str(ranks.peak_tflops)]
        agent += ["--temporary"] * (not ranks.log_dir)
        agent += ["--progress"] * ranks.progress + ["--quiet"] * bool(self.given.get("quiet"))
        return [sys.executable, "-m", AGENT, *agent, "--", *ranks.torchrun(), *self.program]

    def start(self) -> None:
        """Replace this process by the job.

        Raises:
            JobError: see :meth:`command`, or an option of the environment is wrong.
            ModuleNotFoundError: PyTorch is not installed.
        """
        if find_spec("torch") is None:  # rather than a traceback of the user's program
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        environment = self.environment()
        _check_options(environment)
        command = self.command()
        if self.ranks:  # the shim is for the ranks, not for the agent
            del environment["ISTHMUS_SHIM"]
        os.execve(command[0], command, environment)


def _check_options(environment: Mapping[str, str]) -> None:
    """Report wrong options once, before the job starts."""
    try:
        options.check(environment)
    except ValueError as error:
        raise JobError(str(error)) from None


def check_driver(asked: str) -> None:
    """Check that a driver exists, once and before the processes that open it start.

    Args:
        asked: name or path; "" leaves the choice.

    Raises:
        JobError: there is no such driver, or it cannot be used.
    """
    from isthmus import drivers

    if asked and asked not in drivers.DISABLED and (problem := drivers.find(asked).problem):
        raise JobError(f"--driver {asked} (or ISTHMUS_DRIVER): {problem}")


def _find_command(name: str) -> str:
    """The path of a command such as torchrun, looked up beside this Python first."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if found is None:
        raise JobError(f"cannot run {name}: no such file, and no such command on PATH")
    return found
