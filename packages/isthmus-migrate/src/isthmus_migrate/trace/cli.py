"""``isthmus migrate trace``: run a program, and record which of its strings and calls are devices."""

import os
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from isthmus_common.exits import fail
from isthmus_common.files import write_file
from isthmus_migrate.options import TABLE
from isthmus_migrate.trace.evidence import Evidence

METAVAR = "{script.py | -m module | torchrun ... script.py} [arguments]"
_PROGRAM_OPTIONS = ("-m", "-c")
_VALUE_OPTIONS = ("-o", "--output", "--device")


class TraceCommand(TyperCommand):
    """A command whose options end at the program, which has options of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the program."""
        index = 0
        while (
            index < len(args) and args[index].startswith("-") and args[index] not in (*_PROGRAM_OPTIONS, "--")
        ):
            index += 2 if args[index] in _VALUE_OPTIONS else 1
        rest = args[index + 1 :] if args[index : index + 1] == ["--"] else args[index:]
        return super().parse_args(ctx, [*args[:index], "--", *rest])


def trace(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar=METAVAR, help="The program and its own arguments.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the record to this file.")] = Path(
        "evidence.json"
    ),
    device: Annotated[
        str, typer.Option(help="Device that 'cuda' stands for, such as 1, chip:1, or cpu.")
    ] = "",
) -> None:
    """Run a program as `isthmus run` does, and record which of its strings, comparisons and calls are devices.

    The record is written however the program ends, and the exit status is the program's.
    """
    from isthmus.launch.run import Job, JobError

    program = program or []
    if not output.parent.is_dir():
        raise fail(f"{output}: no such folder: {output.parent}", 2)
    with tempfile.TemporaryDirectory(prefix="isthmus-trace-") as parts:
        environ = {
            **os.environ,
            TABLE.variable("migrate_trace"): parts,
            "TORCHDYNAMO_DISABLE": "1",
        }  # compiled code is not instrumented
        job = Job(program, {"device": device, "quiet": "1"}, environ=environ)
        try:
            command, environment = job.command(), job.environment()
        except JobError as error:
            raise fail(error, 2) from None
        status = _run(command, environment)
        evidence = _evidence(program, status, Path(parts))
    try:
        write_file(output, evidence.text().encode())
    except OSError as error:
        raise fail(f"{output}: {error.strerror}; give a writable path") from None
    _report(evidence, output)
    raise typer.Exit(status)


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run the program to its end; return its exit status, 128 and the signal's number if a signal ended it."""
    process = subprocess.Popen(command, env=environment)

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    # A terminal interrupts the program as well, which ends in its own time.
    before = [signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, pass_on)]
    try:
        status = process.wait()
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _evidence(program: list[str], status: int, parts: Path) -> Evidence:
    from isthmus_migrate.trace.parts import merge

    words = 2 if program[0] in _PROGRAM_OPTIONS else 1
    root = _root(program)
    script, arguments = " ".join(program[:words]), tuple(program[words:])
    return Evidence(script, arguments, version("torch"), status, str(root), *merge(parts, root))


def _root(program: list[str]) -> Path:
    """Return the current folder, or that of the script, the first file.py of the program, if it is elsewhere."""
    here = Path.cwd().resolve()
    scripts = (Path(word).resolve() for word in program if word.endswith(".py"))
    script = next((each for each in scripts if each.is_file()), here)
    return here if script.is_relative_to(here) else script.parent


def _report(evidence: Evidence, output: Path) -> None:
    places = [each for file in evidence.files.values() for each in file.places]
    devices = sum(each.is_device for each in places)
    ended = f"; the program ended with status {evidence.status}, so later code was not executed"
    print(
        f"isthmus: {output}: {devices} of {len(places)} executed places in {len(evidence.files)} files are devices"
        f"{ended if evidence.status else ''}",
        file=sys.stderr,
    )
    if evidence.untraced:
        first, *more = evidence.untraced
        others = f" and {len(more)} more calls" if more else ""
        print(f"isthmus: {first}{others}: a device whose origin is unknown; see `untraced`", file=sys.stderr)
