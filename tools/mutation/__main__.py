"""Test the conformance suite itself: ``python -m tools.mutation --help``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus._support.exits import fail
from isthmus.conformance.golden import GoldenError
from tools.mutation.command import Options, mutate
from tools.mutation.run import MutationError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def main(
    operators: Annotated[str, typer.Option(help="Only operators that match this pattern.")] = "*",
    family: Annotated[str, typer.Option(help="Only operators of this family.")] = "",
    golden: Annotated[Path | None, typer.Option(help="Folder of golden data (default: the cache).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice of mutants.")] = 1,
    per_class: Annotated[int, typer.Option(help="Number of mutants of each class.", min=1)] = 40,
    everything: Annotated[bool, typer.Option("--all", help="Try every mutant (hours).")] = False,
    mutants: Annotated[
        Path | None, typer.Option(help="Try the mutants of an earlier run again: its --output.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Print the score of an earlier run beside: its --output.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="JSON file to write, for `isthmus conform report --mutation`.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Markdown page to write.")] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 2,
) -> None:
    """Plant mistakes in correct kernels and count those that the conformance suite detects.

    Exits with 0 on success, with 1 if the suite detects less than 95 % of a class or 98 % of all or rejects a correct
    kernel, and with 2 on invalid input.
    """
    number = 0 if everything else per_class
    options = Options(operators, family, golden, seed, number, mutants, against, output, page, jobs)
    try:
        code = mutate(options)
    except (GoldenError, MutationError, ValueError) as error:
        raise fail(error, 2) from None
    raise typer.Exit(code)


if __name__ == "__main__":
    app(prog_name="python -m tools.mutation")
