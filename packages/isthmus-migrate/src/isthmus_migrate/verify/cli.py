"""``isthmus migrate verify``: compare a run on the CPU with a converted one on the accelerator."""

import re
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from isthmus_common.exits import fail
from isthmus_migrate.arguments import TARGETS
from isthmus_migrate.source.files import Kind, kind_of

_SHOWN = 12  # lines of a side that failed
_WIDE = 200  # columns of what goes to a file
_DEVICE = re.compile(rf"cpu|(?:{'|'.join(TARGETS)})(?::\d+)?|\d+")


class VerifyCommand(TyperCommand):
    """A command whose script has options of its own, after ``--``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options and arguments; an unknown option may be one of the script."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if type(error).__name__ != "NoSuchOption":  # typer's own copy of click is private
                raise
            option = getattr(error, "option_name", "")
            said = f"{option}: unknown option; give options of the script after --: train.py -- {option}"
            raise fail(said, 2) from None


def verify(
    script: Annotated[
        str, typer.Argument(help="Training script written for CUDA; none with -m.", show_default=False)
    ] = "",
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the script, after --.", show_default=False)
    ] = None,
    module: Annotated[
        str, typer.Option("-m", metavar="MODULE", help="Module to run as `python -m` does, not a script.")
    ] = "",
    steps: Annotated[
        int, typer.Option(min=0, help="Optimizer steps after which a process exits; 0 means no limit.")
    ] = 10,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the program; by default the current one.", show_default=False),
    ] = None,
    shim: Annotated[
        bool, typer.Option("--shim", help="Compare with the unchanged script under `isthmus run`.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="Device of the second run; cpu stands for a machine without an accelerator.")
    ] = "",
    target: Annotated[str, typer.Option(help="Device type that the conversion pins.")] = "",
    ddp: Annotated[
        bool,
        typer.Option(
            "--ddp", help="Convert to DistributedDataParallel and compare its ranks with one process."
        ),
    ] = False,
    nproc: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Ranks started by torchrun: of both runs (default 1), with --ddp of the second run (default 2).",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random generators.")] = 0,
    timeout: Annotated[float, typer.Option(min=1, help="Time limit of a run, in seconds.")] = 600,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a script on the CPU and, converted, on the accelerator, and compare the results."""
    from isthmus_migrate.verify import report, session
    from isthmus_migrate.verify.scratch import ScratchError

    given = [*([script] if module and script else []), *(arguments or ())]
    path = _file_of(module) if module else _script(script)
    if said := _describe_mistake(shim, device, target, ddp) or _not_here(target, device):
        raise fail(said, 2)
    ranks = nproc or (2 if ddp else 1)
    task = session.Task(path, given, folder, steps, shim, target, ddp, ranks, seed, timeout, module)
    with tempfile.TemporaryDirectory(prefix="isthmus-verify-", ignore_cleanup_errors=True) as copies:
        try:
            verdict = session.Session(task, Path(copies).resolve(), _print_line).verify(device)
        except ScratchError as error:
            raise fail(error, 2) from None
    if as_json:
        print(report.as_json(task, verdict))
    else:
        report.print_table(verdict, Console(width=None if sys.stdout.isatty() else _WIDE))
    if verdict.problem:
        failed = verdict.other or verdict.original
        for line in failed.errors[-_SHOWN:] if failed.status != 0 and not failed.needs_ranks else ():
            print(f"  {line}", file=sys.stderr)
        raise fail(verdict.problem)
    if not verdict.same:
        raise fail("the runs differ")


def _script(script: str) -> Path:
    """Return the path of a script, or end with an error."""
    if not script:
        raise fail("missing argument: a script, or -m and a module", 2)
    if not (path := Path(script)).is_file():
        raise fail(f"{script}: no such file", 2)
    if kind_of(path.name) not in (Kind.PYTHON, None):
        raise fail(f"{script}: not a Python script; give a training script (export a notebook first)", 2)
    return path


def _file_of(module: str) -> Path:
    """Return the file that ``python -m module`` runs in the current folder, or end with an error."""
    place = Path(*module.split("."))
    for path in (place.with_suffix(".py"), place / "__main__.py"):
        if path.is_file():
            return path
    package = module.partition(".")[0]
    raise fail(f"-m {module}: no such module here; change to the folder that contains {package}", 2)


def _describe_mistake(shim: bool, device: str, target: str, ddp: bool) -> str:
    """Return the error in the options in one line, or ""."""
    if target and target not in TARGETS:
        return f"--target {target}: unknown target; expected one of {', '.join(TARGETS)}"
    if device and not _DEVICE.fullmatch(device):
        return f"--device {device}: unknown device; give cpu, chip or another accelerator, or its index"
    if shim and (target or ddp):
        return f"{'--target' if target else '--ddp'} and --shim exclude each other; --shim does not convert"
    if not shim and device[-1:].isdecimal():
        return f"--device {device}: a converted script uses the first device; omit the index, or give --shim"
    if target and device not in ("", target):
        return f"--target {target} contradicts --device {device}; omit one of them"
    return ""


def _not_here(target: str, device: str) -> str:
    """Return an error if the requested accelerator is not available, else ""."""
    from isthmus_migrate.verify.run import accelerator

    option, kind = ("--target", target) if target else ("--device", device.partition(":")[0])
    if kind not in TARGETS or kind == (here := accelerator()):
        return ""
    return f"{option} {kind}: not available, this machine has {here}; omit {option} or use another machine"


def _print_line(text: str) -> None:
    print(f"isthmus: {text} ...", file=sys.stderr, flush=True)
