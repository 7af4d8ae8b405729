"""``isthmus cluster monitor``: show the cards of all hosts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus_cluster import arguments
from isthmus_cluster.errors import ClusterError
from isthmus_common.exits import exit_on, sigterm_as_interrupt

if TYPE_CHECKING:
    from rich.console import Group

    from isthmus_cluster.monitor.card import Report
    from isthmus_cluster.monitor.reports import Reports

EPILOG = "Exit status of --once: 0 if all hosts answer and all cards are OK, else 3. Ctrl-C ends the command."
_TROUBLE = 3


class Source(StrEnum):
    """The source of measurements."""

    NPU_SMI = "npu-smi"
    NVML = "nvml"
    DRIVER = "driver"


def monitor(
    inventory: Annotated[
        Path | None, typer.Option("--inventory", "-i", help="Inventory to read. Default: this machine.")
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between reports of a host.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the table once.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON instead of the table.")
    ] = False,
    csv: Annotated[Path | None, typer.Option(help="CSV file to append to.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve Prometheus metrics; 0 chooses a free port.")
    ] = None,
    bind: Annotated[str, typer.Option(help="Address that --port listens on.")] = "127.0.0.1",
    source: Annotated[
        Source | None, typer.Option(help="Where measurements come from. Default: what each host has.")
    ] = None,
    python: arguments.Python = "",
) -> None:
    """Show the cards of all hosts: health, power, temperature, utilization, memory, processes."""
    from isthmus_cluster import inventory as inventories
    from isthmus_cluster.monitor import table
    from isthmus_cluster.monitor.metrics import CONTENT_TYPE, metrics
    from isthmus_cluster.monitor.reports import Reports
    from isthmus_cluster.monitor.server import serve

    latest: Mapping[str, Report] = {}
    with exit_on(ClusterError), ExitStack() as stack:
        found = inventories.read(inventory) if inventory else None
        file = table.CsvFile(csv) if csv else None
        if port is not None:
            address = stack.enter_context(
                serve(port, bind, {"/metrics": lambda: (CONTENT_TYPE, metrics(latest))})
            )
            print(f"isthmus: metrics at {address}/metrics", file=sys.stderr, flush=True)
        reports = stack.enter_context(Reports(found, interval, source or "", python or sys.executable))
        show = _printer(as_json, once, is_needed=csv is None and port is None, stack=stack)
        stack.enter_context(sigterm_as_interrupt())
        try:
            for latest in [reports.wait_for_all()] if once else _repeat_reports(reports, interval):
                if file:
                    file.add(latest, time.time())
                show(latest)
        except KeyboardInterrupt:
            return
    if once and not all(_is_well(report) for report in latest.values()):
        raise typer.Exit(_TROUBLE)


def _repeat_reports(reports: Reports, interval: float) -> Iterator[Mapping[str, Report]]:
    yield reports.poll(min(interval, 1.0))
    while True:
        yield reports.poll(interval)


def _is_well(report: Report) -> bool:
    from isthmus_cluster.monitor.card import OK

    return not report.error and all(card.health == OK for card in report.cards)


def _printer(
    as_json: bool, once: bool, *, is_needed: bool, stack: ExitStack
) -> Callable[[Mapping[str, Report]], None]:
    """Return what shows reports: lines of JSON, a table that is refreshed in place, or lines, or nothing."""
    if as_json:
        return lambda latest: print(json.dumps([asdict(report) for report in latest.values()]), flush=True)
    if once or not sys.stdout.isatty():
        return _print_table if once or is_needed else lambda latest: None
    from rich.console import Console
    from rich.live import Live

    live = stack.enter_context(Live(console=Console(), auto_refresh=False))
    return lambda latest: live.update(_screen(latest, live.console.height), refresh=True)


def _print_table(latest: Mapping[str, Report]) -> None:
    from isthmus_cluster.monitor import table
    from isthmus_common.tables import print_table

    print_table(table.HEAD, table.rows(latest), style=table.style)
    sys.stdout.flush()


def _screen(latest: Mapping[str, Report], height: int) -> Group:
    """Return the table with a line above it; if it is too long, what is not OK comes first."""
    from rich.console import Group
    from rich.text import Text

    from isthmus_cluster.monitor import table
    from isthmus_common.tables import plain_table

    rows = table.rows(latest, "\n")
    if len(rows) > height - 3:
        rows.sort(key=lambda row: not table.style(row))
    head = f"{time.strftime('%H:%M:%S')} · {table.summary(latest)} · Ctrl-C ends"
    return Group(Text(head), plain_table(table.HEAD, rows, table.style))
