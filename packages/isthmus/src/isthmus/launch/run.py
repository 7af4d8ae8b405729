"""``isthmus run``: builds the command and the environment of a job, then becomes it."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from isthmus import options
from isthmus.launch.process import MAIN
from isthmus.launch.ranks import AGENT, JobError, Ranks, threads
from isthmus.stand_ins import provide
from isthmus_common.options import Table, table_of, tables

__all__ = ["PATCHABLE", "SITE", "Dump", "Job", "JobError", "check_driver", "separate_program"]

SITE = Path(__file__).parent / "site"

# Options of `isthmus run` that take a value; what follows the program belongs to the program.
VALUE_OPTIONS = tuple(
    "--device --driver --patch --plan --provide --nproc --nproc-per-node --nnodes --node-rank --master-addr "
    "--master-port --rdzv-endpoint --rdzv-id --max-restarts --log-dir --local-ranks-filter --peak-tflops "
    "--dump --dump-dir --dump-level --dump-steps --dump-ranks --dump-scope --monitor "
    "--health-dir".split()
)
PROGRAM_OPTIONS = ("-m", "-c")
_SWITCHES = ("quiet", "megatron", "swap", "health")  # fields of Job that are options of the environment
# isthmus.ops.patching.LIBRARIES, which this process does not import PyTorch for.
PATCHABLE = ("transformers", "torch")


class Dump(NamedTuple):
    """The dump of a job by isthmus_diagnostics.accuracy: the options ``ISTHMUS_DUMP*``; "" leaves the default."""

    kind: str = ""
    folder: str = ""
    level: str = ""
    steps: str = ""
    ranks: str = ""
    scope: str = ""

    def environment(self) -> dict[str, str]:
        """Return the variables.

        Raises:
            JobError: an option is given without ``--dump``.
        """
        if not self.kind and any(self):
            raise JobError("the options of a dump need --dump statistics, hashes or tensors")
        names = ("", "_DIR", "_LEVEL", "_STEPS", "_RANKS", "_SCOPE")
        given = {f"ISTHMUS_DUMP{name}": value for name, value in zip(names, self, strict=True) if value}
        if self.kind:  # programs may change the folder that they run in
            given["ISTHMUS_DUMP_DIR"] = str(Path(self.folder or _table("dump").text("dump_dir")).absolute())
        return given


def _table(name: str) -> Table:
    """Return the options of the package that has this one.

    Raises:
        JobError: it is not installed.
    """
    table = table_of(name)
    if table is None:
        raise JobError(f"--{name} needs isthmus-diagnostics: pip install isthmus-diagnostics")
    return table


def _variable(name: str) -> str:
    return _table(name).variable(name)


def _given_by_run(environment: Mapping[str, str]) -> dict[str, str]:
    declared = (option for table in tables() for option in table.options)
    return {each.variable: each.run for each in declared if each.run and each.variable not in environment}


@dataclass(frozen=True)
class Job:
    """A job to run.

    Attributes:
        program: ``script.py``, ``-m module``, ``-c command`` or a command such as ``torchrun``, with arguments.
        device: device that ``cuda`` stands for, such as ``chip:1``, ``1`` or ``cpu``; "" leaves the choice.
        driver: driver to open, by name or path; "" leaves the choice.
        ranks: how to run it as several processes; None runs one, which this process becomes.
        quiet: print neither start nor end line.
        patch: libraries to put the operators of isthmus.ops under, ``transformers,torch``; "" is none.
        provide: modules to provide where the real ones are absent, ``flash_attn,apex``; "" is none.
        megatron: adapt Megatron, as ``import isthmus.megatron`` at the top of the program would.
        plan: plan file to apply to the model; "" is none.
        swap: keep activations on the host as far as the device has no room.
        monitor: folder of isthmus_diagnostics.accuracy.monitoring; "" is none.
        health: watch the job with isthmus_diagnostics.health.
        health_dir: folder of its reports; "" leaves the default.
        dump: what isthmus_diagnostics.accuracy records.
    """

    program: list[str]
    device: str = ""
    driver: str = ""
    ranks: Ranks | None = None
    quiet: bool = False
    patch: str = ""
    provide: str = ""
    megatron: bool = False
    plan: str = ""
    swap: bool = False
    monitor: str = ""
    health: bool = False
    health_dir: str = ""
    dump: Dump = field(default_factory=Dump)
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
        if self.device == "cpu":  # in CUDA's place; a chip that is registered would be the accelerator still
            changes["ISTHMUS_DRIVER"] = "none"
        if self.driver:
            changes["ISTHMUS_DRIVER"] = self.driver
        changes.update({_variable(name): "1" for name in _SWITCHES if getattr(self, name)})
        changes.update(_given_by_run(self.environ))
        if self.monitor:
            changes[_variable("monitor")] = str(Path(self.monitor).absolute())
        changes.update(self._health())
        if self.plan and self.swap:
            raise JobError(
                "--swap and --plan: give one of them; a plan made with --offload uses the host too"
            )
        if self.plan:
            if not Path(self.plan).is_file():
                raise JobError(f"--plan {self.plan}: no such file; `isthmus plan recompute` writes a plan")
            changes[_variable("plan")] = str(Path(self.plan).absolute())
        if self.patch:
            libraries = [each.strip() for each in self.patch.split(",")]
            if unknown := [each for each in libraries if each not in PATCHABLE]:
                raise JobError(
                    f"--patch {unknown[0]}: not supported by isthmus.ops; expected {', '.join(PATCHABLE)}"
                )
            changes["ISTHMUS_PATCH"] = ",".join(libraries)
        if self.ranks and (self.ranks.number or 0) > 1 and "OMP_NUM_THREADS" not in self.environ:
            changes["OMP_NUM_THREADS"] = threads(self.ranks.number or 1)  # torchrun would make it 1
        return {**self.environ, **changes, **self.dump.environment()}

    def _health(self) -> dict[str, str]:
        if self.health_dir and not self.health:
            raise JobError("--health-dir needs --health")
        if not self.health:
            return {}
        folder = self.health_dir or _table("health").text("health_dir", self.environ)
        # Programs may change their folder. A rank of another job may start this one.
        return {"ISTHMUS_HEALTH_DIR": str(Path(folder).absolute()), "ISTHMUS_HEALTH_CLAIM": ""}

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
        check_driver(self.driver or options.text("driver", self.environ))
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
        agent += ["--progress"] * ranks.progress + ["--quiet"] * self.quiet
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
