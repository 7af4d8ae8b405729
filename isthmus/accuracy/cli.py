"""``isthmus accuracy``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from isthmus._support.exits import fail
from isthmus.accuracy.errors import AccuracyError

app = typer.Typer(
    help="Compare the calls of two runs of a job, whatever device and parallelism each has.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Dumped = Annotated[Path, typer.Argument(help="Folder of a dump (isthmus run --dump).", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def compare(
    a: Dumped,
    b: Dumped,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with the tree of modules, coloured by error.")
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Rows of the table of calls.")] = 20,
) -> None:
    """Pair the calls of two dumps and name the first that differs. Exits with 3 if one does."""
    from isthmus.accuracy import report
    from isthmus.accuracy.comparing import compare as compared

    try:
        found = compared(a, b)
        if html is not None:
            report.write_page(html, found)
    except (AccuracyError, OSError) as error:
        raise fail(error) from None
    print(json.dumps(report.as_json(found), indent=1) if as_json else report.as_text(found, top))
    if found.guilty is not None:
        raise typer.Exit(3)
