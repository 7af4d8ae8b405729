"""``isthmus memory``: record and replay traces of allocations."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from isthmus_common.exits import fail

app = typer.Typer(
    help="Trace what training allocates, and compare allocators on traces.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
trace_app = typer.Typer(
    help="Record or show traces of allocations.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(trace_app, name="trace")


@contextmanager
def _one_line() -> Iterator[None]:
    """Print errors as one line and exit with 1."""
    from isthmus.memory.trace import TraceError

    try:
        yield
    except TraceError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    else:
        return
    raise fail(message)


@trace_app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def record(
    program: Annotated[
        list[str],
        typer.Argument(metavar="script.py | -m module | -c command [arguments]", show_default=False),
    ],
    output: Annotated[Path, typer.Option(help="File to write.")] = Path("recorded.trace"),
) -> None:
    """Run a training program as `isthmus run` does, in one process, and record what it allocates."""
    import os

    from isthmus.launch.process import MAIN
    from isthmus.launch.run import Job, JobError
    from isthmus.memory.trace import TraceError, check_output

    with _one_line():
        check_output(output)
        job = Job(program)
        try:
            command = job.command()
        except JobError as error:
            raise TraceError(str(error)) from None
        if command[1:3] != ["-m", MAIN]:
            raise TraceError(
                f"{program[0]}: only one process can be recorded; give a script, -m module or -c command"
            )
        command[2:3] = ["isthmus.memory.recording", str(output.absolute())]
        os.execve(command[0], command, job.environment())


@trace_app.command()
def show(file: Annotated[Path, typer.Argument(help="Trace.")]) -> None:
    """Summarize a trace: events, live peak of each step, sizes and lifetimes."""
    from isthmus.memory.table import describe
    from isthmus.memory.trace import read

    with _one_line():
        print(describe(read(file)))


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(help="Traces.", show_default=False)],
    allocator: Annotated[
        str,
        typer.Option(
            help="Allocators, such as planned,torch,bf; by default all. Options of one follow a slash: "
            "torch/expandable_segments:True.",
            show_default=False,
        ),
    ] = "",
    conf: Annotated[
        str, typer.Option(help="Options of all allocators, as in PYTORCH_ALLOC_CONF: max_split_size_mb:512.")
    ] = "",
    capacity: Annotated[str, typer.Option(help="Memory of the device, such as 80GiB.")] = "1TiB",
    rounds: Annotated[int, typer.Option(min=1, help="Timing rounds; the fastest counts.")] = 5,
    repeat: Annotated[
        int, typer.Option(min=0, help="Repeat the steps after the first this many times more.")
    ] = 0,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw the address space over time: .png, .svg or .html; one trace only."),
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file, in bytes and nanoseconds.")
    ] = None,
) -> None:
    """Replay traces with allocators: reserved and live peak, fragmentation, time, driver calls.

    Exits with 1 if every allocator runs out of memory on every trace.
    """
    from isthmus.memory import picture as pictures
    from isthmus.memory import replay as engine
    from isthmus.memory.table import columns
    from isthmus.memory.trace import TraceError, check_output, read
    from isthmus_common.files import write_file
    from isthmus_common.tables import align_columns

    with _one_line():
        for output in filter(None, (picture, as_json)):
            check_output(output)
        if picture and len(files) > 1:
            raise TraceError(f"--picture {picture}: a picture shows one trace, not {len(files)}; give one")
        names = _split_names(allocator) if allocator else engine.policies()
        if not names:
            raise TraceError(
                f"--allocator {allocator!r}: no name given; expected some of {', '.join(engine.policies())}"
            )
        limit = engine.parse_size(capacity)
        outcomes = []
        for file in files:
            trace = read(file).repeated(repeat) if repeat else read(file)
            outcomes += engine.replay(trace, names, conf, limit, rounds)
        print(align_columns(columns(outcomes)))
        if as_json:
            rows = [outcome.row() for outcome in outcomes]
            write_file(as_json, [json.dumps(rows, indent=2).encode(), b"\n"])
        if picture:
            pictures.draw(
                picture, trace, [engine.spans(trace, name, conf, limit) for name in names], outcomes
            )
        if all(outcome.out_of_memory >= 0 for outcome in outcomes):
            raise TraceError(f"every allocator runs out of memory ({capacity}); give a larger --capacity")


def _split_names(names: str) -> list[str]:
    """Split at commas, except before an option (key:value) of the preceding allocator."""
    found: list[str] = []
    for part in filter(None, (part.strip() for part in names.split(","))):
        if found and ":" in part and "/" not in part and "/" in found[-1]:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return list(dict.fromkeys(found))
