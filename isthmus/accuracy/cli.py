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


@app.command()
def check(
    dump: Dumped,
    device: Annotated[str, typer.Option(help="Device to run on: chip, cuda, cpu.")] = "chip",
    operators: Annotated[str, typer.Option(help="Pattern of operators, such as 'aten::*mm*'.")] = "*",
    calls: Annotated[int, typer.Option(min=1, help="Most calls of each operator.")] = 16,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="File of the judgements. Default: check-DEVICE.jsonl in the dump.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Check what the file has already, too.")] = False,
) -> None:
    """Run the operators of a dump on a device and judge them by float64 on CPU. Exits with 3 if one is wrong.

    Of a dump of statistics, inputs are drawn that have the same statistics. A run that was cut off continues.
    """
    from isthmus._support.tables import print_table
    from isthmus.accuracy import checking

    _require(device)
    place = out or dump / f"check-{device.replace(':', '-')}.jsonl"
    if again:
        place.unlink(missing_ok=True)
    try:
        rows = checking.check(dump, place, device, operators, calls, jobs)
    except (AccuracyError, OSError) as error:
        raise fail(error) from None
    if not rows:
        raise fail(f"--operators {operators}: the dump has no such operator")
    print_table(checking.HEAD, checking.table(rows))
    wrong = sum(row.verdict == "fail" for row in rows)
    print(f"{len(rows)} calls: {wrong} wrong, {sum(row.verdict == 'skipped' for row in rows)} not judged; {place}")
    if wrong:
        raise typer.Exit(3)


def _require(device: str) -> None:
    import torch

    kind = device.partition(":")[0]
    module = getattr(torch, kind, None)
    if kind != "cpu" and (module is None or not hasattr(module, "is_available") or not module.is_available()):
        raise fail(f"--device {device}: not available; see `isthmus doctor`")
