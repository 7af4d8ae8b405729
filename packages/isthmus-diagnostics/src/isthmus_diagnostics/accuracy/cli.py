"""``isthmus accuracy``: compare two runs of a job, and find the first call that differs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus_common.exits import fail
from isthmus_diagnostics.accuracy.errors import AccuracyError

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
    from isthmus_diagnostics.accuracy import report
    from isthmus_diagnostics.accuracy.comparing import compare as compared

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
    from isthmus_common.tables import print_table
    from isthmus_diagnostics.accuracy import checking

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
    print(
        f"{len(rows)} calls: {wrong} wrong, {sum(row.verdict == 'skipped' for row in rows)} not judged; {place}"
    )
    if wrong:
        raise typer.Exit(3)


def _require(device: str) -> None:
    import torch

    kind = device.partition(":")[0]
    module = getattr(torch, kind, None)
    if kind != "cpu" and (module is None or not hasattr(module, "is_available") or not module.is_available()):
        raise fail(f"--device {device}: not available; see `isthmus doctor`")


@app.command()
def perturb(
    dump: Dumped,
    device: Annotated[str, typer.Option(help="Device to run on: chip, cuda, cpu.")] = "cpu",
    operators: Annotated[str, typer.Option(help="Pattern of operators, such as 'aten::*mm*'.")] = "*",
    calls: Annotated[int, typer.Option(min=1, help="Most calls of each operator.")] = 4,
    top: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 20,
) -> None:
    """Rank the operators of a dump by how unstable their results are, without a second job.

    The numbers are the largest changes of a result, in epsilons of its dtype relative to its root mean square: with
    noise of one epsilon on the inputs, against float64, and with another order of sums.
    """
    from isthmus_common.tables import print_table
    from isthmus_diagnostics.accuracy import perturbing

    _require(device)
    try:
        rows, skipped = perturbing.perturb_dump(dump, operators, calls, device)
    except (AccuracyError, OSError) as error:
        raise fail(error) from None
    print_table(perturbing.HEAD, [perturbing.cells(row) for row in rows[:top]])
    print(f"{len(rows)} calls; {skipped} not run")


@app.command()
def config(a: Dumped, b: Dumped, as_json: AsJson = False) -> None:
    """List what two jobs have differently before a number is compared. Exits with 3 if anything is.

    Environment, packages, arguments, hyperparameters, switches of determinism, random states, first weights, data.
    """
    from isthmus_diagnostics.accuracy import dumps
    from isthmus_diagnostics.accuracy.configuration import differences

    try:
        found = differences(dumps.read(a), dumps.read(b))
    except (AccuracyError, OSError) as error:
        raise fail(error) from None
    rows = [[each.section, each.name, str(each.a), str(each.b)] for each in found]
    _print(found, ["section", "name", "A", "B"], rows, "no difference", as_json)


@app.command()
def monitor(
    folder: Annotated[Path, typer.Argument(help="Folder of isthmus run --monitor.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """List the alerts of a monitored job, and the weights of which replicas differ. Exits with 3 if there are any."""
    from isthmus_diagnostics.accuracy.monitoring import alerts

    try:
        found = alerts(folder)
    except (AccuracyError, OSError, ValueError) as error:
        raise fail(error) from None
    rows = [
        [str(each.step), "-" if each.rank is None else str(each.rank), each.kind, each.text] for each in found
    ]
    _print(found, ["step", "rank", "kind", "finding"], rows, "no alert", as_json)


def _print(found: Sequence[Any], head: list[str], rows: list[list[str]], none: str, as_json: bool) -> None:
    """Print what was found as JSON or as a table, and exit with 3 if there is anything."""
    from isthmus_common.tables import print_table

    if as_json:
        print(json.dumps([each._asdict() for each in found], indent=1, default=str))
    elif found:
        print_table(head, rows)
    else:
        print(none)
    if found:
        raise typer.Exit(3)


@app.command()
def export(
    dump: Dumped, folder: Annotated[Path, typer.Argument(help="Folder to create.", show_default=False)]
) -> None:
    """Write the statistics of a dump in the layout of msprobe: dump.json, stack.json, construct.json."""
    from isthmus_diagnostics.accuracy import dumps, msprobe

    try:
        msprobe.write(dumps.read(dump), folder)
    except (AccuracyError, OSError) as error:
        raise fail(error) from None
    print(folder)
