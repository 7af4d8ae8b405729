"""Make a published trace of benchmarks/traces again: ``python -m tools.traces --help``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.memory.trace import TraceError, write
from isthmus_common.exits import fail
from isthmus_common.files import make_folder
from tools.traces import catalogue

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def main(
    name: Annotated[
        str, typer.Argument(help="Name of a published trace, or all; without it, list the names.")
    ] = "",
    output: Annotated[Path, typer.Option(help="Folder to write.")] = Path("traces"),
) -> None:
    """Make a published trace: training steps of a large model under FakeTensorMode, without its memory."""
    if not name:
        for each, (model, _) in catalogue.JOBS.items():
            print(f"{each:26}{model}")
        return
    try:
        for each in catalogue.names() if name == "all" else [name]:
            trace = catalogue.generate(each)
            path = output / f"{each}.trace"
            make_folder(output)
            size = write(trace, path)
            print(f"{path}: {len(trace)} events in {trace.steps} steps, {size} bytes", flush=True)
    except (TraceError, OSError) as error:
        raise fail(error) from None


if __name__ == "__main__":
    app(prog_name="python -m tools.traces")
