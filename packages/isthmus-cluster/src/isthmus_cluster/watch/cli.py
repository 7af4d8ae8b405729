"""``isthmus cluster watch``: watch a running job and its cards."""

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus_cluster import arguments
from isthmus_cluster.errors import ClusterError
from isthmus_common.exits import exit_on, sigterm_as_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from isthmus_cluster.watch.state import View


def watch(
    health_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a job with `isthmus run --health`. Default: cards only.", show_default=False
        ),
    ] = None,
    inventory: Annotated[
        Path | None,
        typer.Option(
            "--inventory",
            "-i",
            help="Inventory of the hosts whose cards are watched. Default: this machine's, without --health-dir.",
            show_default=False,
        ),
    ] = None,
    verdicts: Annotated[
        Path | None, typer.Option(help="File of `isthmus cluster isolate --output`.", show_default=False)
    ] = None,
    web: Annotated[
        bool,
        typer.Option(
            "--web", help="Serve a page, and /metrics for Prometheus, instead of the terminal's view."
        ),
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0: a free one.")] = 9401,
    bind: Annotated[
        str, typer.Option(help="Address of the page. It has no password: other machines should not reach it.")
    ] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Print one view, and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    window: Annotated[float, typer.Option(min=0.1, help="Minutes of the history of step times.")] = 30.0,
    python: arguments.Python = "",
) -> None:
    """Watch a running job: its ranks, step times, collectives in flight, faults and cards."""
    import sys

    from isthmus_cluster import inventory as inventories
    from isthmus_cluster.monitor.reports import Reports
    from isthmus_cluster.watch import terminal
    from isthmus_cluster.watch.state import Watcher

    with exit_on(ClusterError), contextlib.ExitStack() as stack:
        hosts = inventories.read(inventory) if inventory else None
        watcher = Watcher(health_dir, verdicts, 60 * window)
        cards = None
        if hosts or not health_dir:
            cards = stack.enter_context(Reports(hosts, max(interval, 1.0), python=python or sys.executable))
        if once or not (web or sys.stdout.isatty()):
            view = watcher.update(cards.wait_for_all() if cards else {})
            print(terminal.text(view))
            if view.problems:
                raise typer.Exit(3)
            return

        def look() -> "View":
            if cards:
                return watcher.update(cards.poll(interval))
            time.sleep(interval)
            return watcher.update()

        stack.enter_context(sigterm_as_interrupt())
        watcher.update()
        with contextlib.suppress(KeyboardInterrupt):
            if web:
                from isthmus_cluster.watch.web import serve

                with serve(watcher, bind, port) as address:
                    print(f"isthmus: {address}/ (metrics: {address}/metrics); Ctrl-C ends", flush=True)
                    while True:
                        look()
            else:
                _show(watcher.view, look)


def _show(view: "View", look: "Callable[[], View]") -> None:
    """Refresh the view on the whole terminal, until an interrupt."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from isthmus_cluster.watch import terminal

    console = Console()

    def text(view: "View") -> Text:
        rows = max(3, (console.height - 16) // 4)  # rows of four tables
        found = Text(terminal.text(view, rows), no_wrap=True, overflow="ellipsis")
        found.highlight_regex(r"(?m)silent for \d+ s|^! .*", "bold red")
        return found

    with Live(text(view), console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(text(look()), refresh=True)
