"""``isthmus migrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus._support.exits import fail
from isthmus.migrate.convert.cli import convert, rules
from isthmus.migrate.verify.cli import verify

app = typer.Typer(
    help="From CUDA to any accelerator: what binds a project to CUDA, its source converted, and the proof.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Select = Annotated[
    list[str], typer.Option("--select", help="Only findings whose code starts so, such as IM3,IM4.")
]
Ignore = Annotated[list[str], typer.Option("--ignore", help="No findings whose code starts so.")]


@app.command()
def analyse(
    path: Annotated[Path, typer.Argument(help="Folder, file or notebook.", show_default=False)],
    target: Annotated[str, typer.Option(help="chip, npu, xpu or cuda; without it, any accelerator.")] = "",
    format: Annotated[str, typer.Option(help="table, json, sarif, csv or html.")] = "table",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write the files of the vendor's tool into this folder.")
    ] = None,
    select: Select = [],  # noqa: B006 - typer's
    ignore: Ignore = [],  # noqa: B006
    fail_on: Annotated[
        str, typer.Option(help="Exit with 1 on findings from here on: automatic, review, manual or never.")
    ] = "manual",
    probe: Annotated[bool, typer.Option(help="Ask PyTorch and the target which operators run where.")] = True,
) -> None:
    """Find what binds a project to CUDA, without running it."""
    from isthmus._support.progress import Bar
    from isthmus.migrate.analyse import engine, report

    request = report.Request(target, format, output, csv, _codes(select), _codes(ignore), fail_on)
    if said := request.mistake():
        raise fail(said, 2)
    try:
        with Bar("files") as bar:
            found = engine.analyse(path, target, progress=bar.count, probe=probe)
    except FileNotFoundError:
        raise fail(f"{path}: there is nothing; give a folder or a file", 2) from None
    try:
        failed = report.write(found, request)
    except OSError as error:
        raise fail(f"{error.filename}: {error.strerror}; give a place that can be written") from None
    if failed:
        raise typer.Exit(1)


def _codes(options: list[str]) -> tuple[str, ...]:
    return tuple(code.strip().upper() for option in options for code in option.split(",") if code.strip())


app.command()(convert)
app.command()(verify)
app.command()(rules)
