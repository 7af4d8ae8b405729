"""Test the conformance suite itself: ``python -m tools.mutation --help``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus._support.exits import fail
from isthmus.conformance.golden import GoldenError
from tools.mutation.command import mutate
from tools.mutation.run import MutationError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def main(
    operators: Annotated[str, typer.Option(help="Only operators that match this pattern.")] = "*",
    family: Annotated[str, typer.Option(help="Only operators of this family.")] = "",
    golden: Annotated[Path | None, typer.Option(help="Folder of golden data (default: the cache).")] = None,
    output: Annotated[
        Path | None, typer.Option(help="JSON file to write, for `isthmus conform report --mutation`.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 2,
    one_of_each: Annotated[bool, typer.Option(help="Try only one mutant of each mutation operator.")] = False,
) -> None:
    """Plant mistakes in correct kernels and count those that the conformance suite detects.

    Exits with 0 on success, with 1 if the suite detects less than 95 % or rejects a correct kernel, and with 2 on
    invalid input.
    """
    try:
        code = mutate(operators, family, golden, output, jobs, one_of_each)
    except (GoldenError, MutationError, ValueError) as error:
        raise fail(error, 2) from None
    raise typer.Exit(code)


if __name__ == "__main__":
    app(prog_name="python -m tools.mutation")
