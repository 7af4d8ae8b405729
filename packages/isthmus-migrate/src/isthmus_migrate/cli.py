"""``isthmus migrate``: analyse, convert and verify a project."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus_common.exits import fail
from isthmus_migrate import arguments
from isthmus_migrate.arguments import FailOn, Paths, Record, Target
from isthmus_migrate.convert.cli import convert, rules
from isthmus_migrate.trace.cli import TraceCommand, trace
from isthmus_migrate.verify.cli import VerifyCommand, verify

app = typer.Typer(
    help="Move a project from CUDA to any accelerator: analyse, convert and verify its source.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Select = Annotated[
    list[str],
    typer.Option("--select", help="Only findings whose codes start with one of these, such as IM3,IM4."),
]
Ignore = Annotated[
    list[str], typer.Option("--ignore", help="Skip findings whose codes start with one of these.")
]


@app.command()
def analyse(
    paths: Paths,
    target: Target = "",
    format: Annotated[str, typer.Option(help="table, json, sarif, csv or html.")] = "table",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the report to this file.")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Also write CSV files in the format of the vendor's tool to this folder."),
    ] = None,
    select: Select = [],  # noqa: B006 - typer's
    ignore: Ignore = [],  # noqa: B006
    fail_on: FailOn = "manual",
    advice: Annotated[
        bool,
        typer.Option(
            "--advice",
            help="Also find what is optional: speed, precision, loading of checkpoints (IM6 to IM8).",
        ),
    ] = False,
    all: Annotated[bool, typer.Option("--all", help="Also list what needs no change.")] = False,
    evidence: Record = None,
    probe: Annotated[
        bool, typer.Option(help="Probe PyTorch and the target for unsupported operators.")
    ] = True,
) -> None:
    """Find the CUDA dependencies of a project without running it, and how `isthmus migrate convert` ends each.

    The exit status is 1 if --fail-on applies or a file cannot be written, 2 for wrong usage.
    """
    from isthmus_common.progress import Bar
    from isthmus_migrate.analyse import engine, report
    from isthmus_migrate.rules.registry import RegistryError, all_rules

    request = report.Request(format, output, csv, _codes(select), _codes(ignore), fail_on, all)
    try:
        all_rules()
    except RegistryError as error:
        raise fail(error) from None
    if said := arguments.mistake(paths, target, fail_on) or request.mistake():
        raise fail(said, 2)
    record = arguments.evidence(evidence, paths)
    with Bar("files") as bar:
        found = engine.analyse(
            *paths, target=target, progress=bar.count, probe=probe, advice=advice, evidence=record
        )
    try:
        failed = report.write(found, request)
    except OSError as error:
        raise fail(f"{error.filename}: {error.strerror}; give a writable path") from None
    if failed:
        raise typer.Exit(1)


def _codes(given: list[str]) -> tuple[str, ...]:
    return tuple(code.strip().upper() for option in given for code in option.split(",") if code.strip())


app.command()(convert)
app.command(cls=VerifyCommand)(verify)
app.command(cls=TraceCommand, options_metavar="[-o FILE] [--device D]")(trace)
app.command()(rules)
