"""``isthmus migrate verify``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from isthmus.exits import fail
from isthmus.migrate.convert.cli import TARGETS

_SHOWN = 12  # lines of a side that failed
_WIDE = 200  # columns of what goes to a file


def verify(
    script: Annotated[Path, typer.Argument(help="Training script written for CUDA.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Its own arguments, after --.", show_default=False)
    ] = None,
    steps: Annotated[
        int, typer.Option(min=0, help="Optimizer steps after which a process ends; 0 is to its end.")
    ] = 10,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the program, if it is not the current one.", show_default=False),
    ] = None,
    shim: Annotated[
        bool, typer.Option("--shim", help="Compare with the script as it is under isthmus run.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="Device of the second run; cpu is a machine without an accelerator.")
    ] = "",
    target: Annotated[str, typer.Option(help="Device type that the conversion pins.")] = "",
    nproc: Annotated[int, typer.Option(min=1, help="Ranks on each side, started by torchrun.")] = 1,
    seed: Annotated[int, typer.Option(help="Of every random generator.")] = 0,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one run.")] = 600,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a script on the CPU and, converted, on the accelerator, and compare what they compute."""
    from isthmus.migrate.verify import report, session
    from isthmus.migrate.verify.scratch import ScratchError

    if not script.is_file():
        raise fail(f"{script}: no such script", 2)
    if target and target not in TARGETS:
        raise fail(f"--target {target}: no such target; there are {', '.join(TARGETS)}", 2)
    if device and not _is_device(device):
        raise fail(
            f"--device {device}: no such device; give cpu, chip or another accelerator, or its index", 2
        )
    task = session.Task(script, arguments or (), folder, steps, shim, target, nproc, seed, timeout)
    with tempfile.TemporaryDirectory(prefix="isthmus-verify-", ignore_cleanup_errors=True) as copies:
        try:
            verdict = session.Session(task, Path(copies).resolve(), _say).verify(device)
        except ScratchError as error:
            raise fail(error, 2) from None
    if as_json:
        print(report.as_json(task, verdict))
    else:
        report.print_table(verdict, Console(width=None if sys.stdout.isatty() else _WIDE))
    if verdict.problem:
        failed = verdict.other or verdict.original
        for line in failed.errors[-_SHOWN:] if failed.status != 0 else ():
            print(f"  {line}", file=sys.stderr)
        raise fail(verdict.problem)
    if not verdict.same:
        raise fail("the runs differ")


def _is_device(name: str) -> bool:
    kind, _, index = name.rpartition(":") if name[-1:].isdigit() else (name, "", "")
    return kind in ("", "cpu", *TARGETS) and (not index or index.isdecimal())


def _say(text: str) -> None:
    print(f"isthmus: {text} ...", file=sys.stderr, flush=True)
