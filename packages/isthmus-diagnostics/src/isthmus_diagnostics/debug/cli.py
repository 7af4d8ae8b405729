"""``isthmus debug``, ``isthmus replay``, ``isthmus bisect``."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from isthmus_common.exits import fail
from isthmus_diagnostics.debug.errors import DebugError

_PROGRAM = {"allow_interspersed_args": False}
_ROUTES = {
    "cpu": "fallback",
    "fallback": "fallback",
    "decomposition": "decomposition",
    "delegate": "delegate",
}
Driver = Annotated[str, typer.Option(help="Driver to open, by name or path.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(debug)
    app.command()(replay)
    app.command(context_settings=_PROGRAM)(bisect)


def debug(
    pid: Annotated[
        int | None, typer.Argument(help="Process ID; without it, list the processes that can be debugged.")
    ] = None,
    action: Annotated[
        str,
        typer.Argument(help="Tool to enable (compare, capture, fallback, overflow, time), off or status."),
    ] = "status",
    pattern: Annotated[str, typer.Argument(help="Operators, such as 'aten::*mm*'.")] = "*",
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answer.")] = 30.0,
) -> None:
    """Enable or disable a debugging tool in a running job started by `isthmus run`."""
    from isthmus_diagnostics.debug import control

    try:
        if pid is None:
            for process in control.processes():
                rank = f"rank {process.rank}  " if process.rank else ""
                print(f"{process.pid}  {rank}{process.command}")
        else:
            print(control.ask(pid, action, pattern, timeout))
    except (DebugError, PermissionError) as error:
        raise fail(error) from None


def replay(
    folder: Annotated[Path, typer.Argument(help="Folder of captured calls, or of one call.")],
    device: Annotated[str, typer.Option(help="Device to run on: chip or cpu.")] = "chip",
    compare: Annotated[
        bool, typer.Option("--compare", help="Also judge results that equal the captured ones.")
    ] = False,
    times: Annotated[int, typer.Option(min=1, help="Runs of each call; all must give the same bits.")] = 1,
    driver: Driver = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Replay captured calls. Exits with 3 if a result is wrong, 1 if a call cannot be replayed."""
    from isthmus.launch.run import JobError, check_driver

    if device.partition(":")[0] not in ("chip", "cpu"):
        raise fail(f"--device {device}: give chip or cpu", 2)
    try:
        check_driver(driver)
    except JobError as error:
        raise fail(error, 2) from None
    if driver:
        os.environ["ISTHMUS_DRIVER"] = driver  # read when PyTorch is imported
    import torch

    if not hasattr(torch, device.partition(":")[0]) or not torch.get_device_module(device).is_available():
        raise fail(f"--device {device}: not available; see `isthmus doctor`")
    from isthmus_diagnostics.debug import replay as again

    outcomes = []
    try:
        for place in again.folders(folder):
            outcomes.append(again.replay(again.read(place), device, times, compare))
            if not as_json:
                print(again.line(outcomes[-1]))
    except again.ReplayError as error:
        raise fail(error) from None
    failed = sum(each.is_wrong for each in outcomes)
    unusable = sum(bool(each.problem) and not each.captured.random for each in outcomes if not each.is_wrong)
    if as_json:
        print(json.dumps([again.as_json(each) for each in outcomes], indent=1))
    else:
        print(f"{len(outcomes)} calls: {failed} wrong, {unusable} not judged")
    if failed or unusable:
        raise typer.Exit(3 if failed else 1)


def bisect(
    program: Annotated[
        list[str], typer.Argument(metavar="script.py | -m module | command [arguments]", show_default=False)
    ],
    metric: Annotated[
        str,
        typer.Option(
            help="Regular expression with one group that matches a number in the output; by default the loss."
        ),
    ] = "",
    tolerance: Annotated[
        float | None,
        typer.Option(min=0.0, help="Relative difference up to which results are equal; measured by default."),
    ] = None,
    reference_route: Annotated[
        str, typer.Option(help="Route whose results are correct: cpu, decomposition or delegate.")
    ] = "cpu",
    driver: Driver = "",
) -> None:
    """Find the operators that make a program's result wrong, by repeated runs with fewer operators on the chip."""
    from isthmus.launch.run import Job, JobError, check_driver
    from isthmus_diagnostics.debug import bisect as search
    from isthmus_diagnostics.debug import readings

    if reference_route not in _ROUTES:
        raise fail(f"--reference-route {reference_route}: give {', '.join(_ROUTES)}", 2)
    try:
        readings.compile_metric(metric)
    except DebugError as error:
        raise fail(error, 2) from None
    try:
        check_driver(driver)
        job = Job(program, {"driver": driver, "quiet": "1"})
        finder = search.Bisect(
            job.command(),
            job.environment(),
            metric or readings.METRIC,
            tolerance,
            _ROUTES[reference_route],
            _tell,
        )
        found = finder.find()
    except JobError as error:
        raise fail(error, 2) from None
    except DebugError as error:
        raise fail(error) from None
    print(f"{found.reason} ({found.runs} runs)")
    run = " ".join(["isthmus run", *(["--driver", driver] if driver else []), *program])
    for group in found.guilty:
        pattern = ",".join(f"compare:{name}" for name in group)
        print(f"{' with '.join(group)}: ISTHMUS_DEBUG='{pattern}' {run}")
    if found.guilty:
        raise typer.Exit(3)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
