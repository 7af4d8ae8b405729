"""``isthmus cluster preflight``: check all hosts and cards before a job."""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus_cluster import arguments
from isthmus_cluster.errors import ClusterError
from isthmus_common.exits import exit_on

if TYPE_CHECKING:
    from isthmus_cluster.preflight.checks import Problem

CHECKS = ("versions", "clocks", "limits", "space", "permissions", "ports", "reach", "cards", "collectives")
EPILOG = f"Checks: {', '.join(CHECKS)}. Exit status: 0 without a failure, 3 with one; warnings do not count."
_DTYPES = ("float32", "bfloat16", "float16")
_DAY = 86400
_EIB = 1 << 30  # in GiB


def preflight(
    inventory: arguments.Inventory = arguments.INVENTORY,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="HTML page to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    checks: Annotated[str, typer.Option(help="Checks to run, separated by commas. Default: all.")] = "",
    skip: Annotated[str, typer.Option(help="Checks to leave out, separated by commas.")] = "",
    path: Annotated[
        list[Path] | None, typer.Option(help="Folder that a job uses on every host; repeatable.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of rank 0. Default: those of the launchers.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, max=_DAY, help="Seconds of load on each card.")] = 10.0,
    matrix: Annotated[int, typer.Option(min=1, help="Rows of the matrices.")] = 2048,
    dtype: Annotated[str, typer.Option(help=f"Type of their elements: {', '.join(_DTYPES)}.")] = "float32",
    size: Annotated[int, typer.Option(min=1, help="MiB of a copy, and of an all-reduce.")] = 256,
    device: Annotated[
        str, typer.Option(help="Type of the cards, such as cuda. Default: the accelerator of each host.")
    ] = "",
    timeout: Annotated[
        float,
        typer.Option(
            min=1, max=_DAY, help="Seconds without an answer after which a host or card has failed."
        ),
    ] = 60.0,
    clock: Annotated[float, typer.Option(min=0, max=_DAY, help="Seconds that clocks may differ.")] = 0.1,
    memory: Annotated[float, typer.Option(min=0, max=_EIB, help="GiB of memory that must be free.")] = 4.0,
    disk: Annotated[
        float, typer.Option(min=0, max=_EIB, help="GiB that must be free in --path and /tmp.")
    ] = 10.0,
    slow: Annotated[
        float, typer.Option(min=0, max=0.99, help="A slow card is this share below the median at least.")
    ] = 0.2,
    deviations: Annotated[float, typer.Option(min=0, help="And this many robust standard deviations.")] = 6.0,
    at_least: Annotated[
        list[str] | None, typer.Option(metavar="FIGURE=RATE", help="Lowest rate of a card; repeatable.")
    ] = None,
    python: arguments.Python = "",
) -> None:
    """Check all hosts and cards before a job: versions, clocks, limits, space, ports, results and speed."""
    from isthmus_cluster import inventory as inventories
    from isthmus_cluster.preflight import page, run
    from isthmus_cluster.preflight.checks import Thresholds, examine
    from isthmus_common.files import make_folder
    from isthmus_common.progress import Bar

    with exit_on(ClusterError):
        if dtype not in _DTYPES:
            raise ClusterError(f"--dtype {dtype}: expected {', '.join(_DTYPES)}")
        settings = run.Settings(
            checks=_chosen_checks(checks, skip),
            python=python or sys.executable,
            paths=[str(each) for each in path or []],
            port=port,
            timeout=timeout,
            seconds=seconds,
            rows=matrix,
            dtype=dtype,
            mib=size,
            device=device,
        )
        thresholds = Thresholds(
            clock=clock,
            memory=memory,
            disk=disk,
            deviations=deviations,
            slow=slow,
            at_least=dict(map(_parse_threshold, at_least or [])),
        )
        hosts = inventories.read(inventory)
        if output:  # an error before the load, not after it
            make_folder(output.absolute().parent)
            if output.is_dir():
                raise ClusterError(f"{output}: is a folder; give the path of a file")
            try:
                tempfile.TemporaryFile(dir=output.absolute().parent).close()
            except OSError as error:
                raise ClusterError(f"{output}: {error.strerror}; give another --output") from None
        with Bar("preflight") as bar:
            results = run.run(hosts, settings, bar.at)
        problems = examine(results, thresholds)
        if as_json:
            found = {"problems": [each._asdict() for each in problems], **asdict(results)}
            print(json.dumps(found, indent=1))
        else:
            _show(problems)
        if output:
            page.write(output, hosts.name, results, problems, thresholds)
    if any(each.state == "fail" for each in problems):
        raise typer.Exit(3)


def _chosen_checks(checks: str, skip: str) -> list[str]:
    """Return the checks to run, in their order."""
    wanted, unwanted = ({name.strip() for name in text.split(",") if name.strip()} for text in (checks, skip))
    if unknown := sorted((wanted | unwanted) - set(CHECKS)):
        raise ClusterError(f"{unknown[0]}: unknown check; expected {', '.join(CHECKS)}")
    return [name for name in CHECKS if name in (wanted or CHECKS) and name not in unwanted]


def _parse_threshold(text: str) -> tuple[str, float]:
    from isthmus_cluster.preflight.checks import FIGURES

    name, _, rate = text.partition("=")
    try:
        if name in FIGURES:
            return name, float(rate)
    except ValueError:
        pass
    known = ", ".join(f"{figure} ({unit})" for figure, unit in FIGURES.items())
    raise ClusterError(
        f"--at-least {text}: expected a figure and a number, such as memory=100; known: {known}"
    )


def _show(problems: "list[Problem]") -> None:
    from isthmus_cluster.preflight.checks import shorten_places
    from isthmus_common.tables import print_table

    colors = {"fail": "red", "warning": "yellow"}
    rows = [
        (each.state.value, each.check, shorten_places(each.where), each.text, each.remedy)
        for each in problems
    ]
    if rows:
        print_table(("state", "check", "where", "what", "remedy"), rows, style=lambda row: colors[row[0]])
    else:
        print("no problem found")
