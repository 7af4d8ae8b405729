"""``isthmus run``: builds the command and the environment of a job, then becomes it."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from isthmus.launch import provide
from isthmus.launch.process import MAIN

SITE = Path(__file__).parent / "site"

# Options of `isthmus run` that take a value; what follows the program belongs to the program.
VALUE_OPTIONS = ("--device", "--driver", "--nproc", "--patch", "--provide")
PROGRAM_OPTIONS = ("-m", "-c")
# isthmus.ops.patching.LIBRARIES, which this process does not import PyTorch for.
PATCHABLE = ("transformers", "torch")


class JobError(ValueError):
    """The job cannot be started; the message says why, in one line."""


@dataclass(frozen=True)
class Job:
    """What to run and how.

    Attributes:
        program: ``script.py``, ``-m module``, ``-c command`` or a command such as ``torchrun``, with arguments.
        device: device that ``cuda`` stands for, such as ``chip:1`` or ``1``; "" leaves the choice.
        driver: driver to open, by name or path; "" leaves the choice.
        nproc: number of processes, each a rank; 0 starts one without torchrun.
        quiet: print neither start nor end line.
        patch: libraries to put the operators of isthmus.ops under, ``transformers,torch``; "" is none.
        provide: modules to provide where the real ones are absent, ``flash_attn,apex``; "" is none.
        megatron: adapt Megatron, as ``import isthmus.megatron`` at the top of the program would.
    """

    program: list[str]
    device: str = ""
    driver: str = ""
    nproc: int = 0
    quiet: bool = False
    patch: str = ""
    provide: str = ""
    megatron: bool = False
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def environment(self) -> dict[str, str]:
        """Environment of the job: its Python processes and their children find the shim by it.

        Raises:
            JobError: there is nothing to put under that library, or what is to be provided cannot be.
        """
        try:
            provided = provide.folders(self.provide)
        except ValueError as error:
            raise JobError(f"--provide: {error}") from None
        path = self.environ.get("PYTHONPATH", "")
        first = [str(SITE), *provided]
        others = [entry for entry in path.split(os.pathsep) if entry and entry not in first]
        changes = {"ISTHMUS_SHIM": "1", "PYTHONPATH": os.pathsep.join([*first, *others])}
        if self.device:
            changes["ISTHMUS_DEVICE"] = self.device
        if self.driver:
            changes["ISTHMUS_DRIVER"] = self.driver
        if self.quiet:
            changes["ISTHMUS_QUIET"] = "1"
        if self.megatron:
            changes["ISTHMUS_MEGATRON"] = "1"
        if self.patch:
            libraries = [each.strip() for each in self.patch.split(",")]
            if unknown := [each for each in libraries if each not in PATCHABLE]:
                raise JobError(
                    f"--patch {unknown[0]}: isthmus.ops has nothing for it, only for {', '.join(PATCHABLE)}"
                )
            changes["ISTHMUS_PATCH"] = ",".join(libraries)
        if self.nproc > 1 and "OMP_NUM_THREADS" not in self.environ:  # torchrun would make it 1
            changes["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // self.nproc))
        return {**self.environ, **changes}

    def command(self) -> list[str]:
        """Command line of the job's first process.

        Raises:
            JobError: there is no such program, or it cannot be run as several processes.
        """
        if not self.program:
            raise JobError(
                "nothing to run; give a script, -m module, -c command or a command such as torchrun"
            )
        kind = self.program[0]
        if kind in PROGRAM_OPTIONS and len(self.program) < 2:
            raise JobError(f"{kind} needs a value")
        if self.nproc:
            return self._torchrun()
        if kind in PROGRAM_OPTIONS or Path(kind).exists():
            return [sys.executable, "-m", MAIN, *self.program]
        return [_find_command(kind), *self.program[1:]]

    def _torchrun(self) -> list[str]:
        kind = self.program[0]
        if self.nproc < 1:
            raise JobError(f"--nproc {self.nproc}: give 1 or more")
        if kind == "-c":
            raise JobError("--nproc runs a script or a module; -c has no file for the other processes to run")
        if kind != "-m" and not Path(kind).is_file():
            raise JobError(f"{kind}: no such script; --nproc runs a script or a module")
        run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.nproc}"]
        return [sys.executable, *run, *self.program]

    def start(self) -> None:
        """Replace this process by the job.

        Raises:
            JobError: see :meth:`command`.
            ModuleNotFoundError: PyTorch is not installed.
        """
        if find_spec("torch") is None:  # said here, not by a traceback of the user's program
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        command = self.command()
        os.execve(command[0], command, self.environment())


def _find_command(name: str) -> str:
    """A command such as torchrun, first beside this Python."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if found is None:
        raise JobError(f"cannot run {name}: no such file, and no such command on PATH")
    return found


def separate_program(arguments: list[str]) -> list[str]:
    """Insert ``--`` between the options of ``isthmus run`` and the program, which has options of its own."""
    index = 0
    while (
        index < len(arguments)
        and arguments[index].startswith("-")
        and arguments[index] not in PROGRAM_OPTIONS
    ):
        if arguments[index] == "--":
            return arguments
        index += 2 if arguments[index] in VALUE_OPTIONS else 1
    return [*arguments[:index], "--", *arguments[index:]] if index < len(arguments) else arguments
