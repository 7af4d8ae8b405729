"""Test the conformance suite itself: ``python -m tools.mutation --help``."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.conformance import cache
from isthmus.conformance.golden import GoldenError
from isthmus_common.exits import fail
from isthmus_common.files import write_file
from isthmus_common.progress import Bar, say
from isthmus_common.tables import align_columns
from tools.mutation.draw import choose_named, draw
from tools.mutation.mutant import Mutant
from tools.mutation.page import COUNTS, percent, write_page
from tools.mutation.run import MutationError, Runner, Selection
from tools.mutation.score import summary, unused_proofs

OF_A_CLASS, IN_TOTAL = 0.95, 0.98

app = typer.Typer(add_completion=False, rich_markup_mode=None)
File = Path | None


@app.command()
def main(
    operators: Annotated[str, typer.Option(help="Only operators that match this pattern.")] = "*",
    golden: Annotated[File, typer.Option(help="Folder of golden data (default: the cache).")] = None,
    seed: Annotated[list[int], typer.Option(help="Seed of the choice of mutants; may be repeated.")] = [1],  # noqa: B006
    per_class: Annotated[int, typer.Option(help="Number of mutants of each class and seed.", min=1)] = 40,
    everything: Annotated[bool, typer.Option("--all", help="Try every mutant (hours).")] = False,
    mutants: Annotated[File, typer.Option(help="Try the mutants of an earlier run: its --output.")] = None,
    against: Annotated[File, typer.Option(help="Print the score of an earlier run: its --output.")] = None,
    output: Annotated[File, typer.Option(help="JSON file, for `isthmus conform report --mutation`.")] = None,
    page: Annotated[File, typer.Option(help="Markdown page to write.")] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 2,
) -> None:
    """Plant mistakes in correct kernels and count those that the conformance suite detects.

    Exits with 0 on success, with 1 if the suite detects less than 95 % of a class or 98 % of all or rejects a correct
    kernel, and with 2 on invalid input.
    """

    def choose(found: Sequence[Mutant]) -> list[Mutant]:
        if given:
            return choose_named(found, given["names"])
        return list(found) if everything else draw(found, seed, per_class)

    start = time.perf_counter()
    try:
        given, other = (_read(file) if file else None for file in (mutants, against))
        reader = cache.golden(golden, say)
        selection = Selection(reader, operators)
        with Bar("mutants") as bar:
            score = Runner(selection, bar.advance, jobs).run(choose)
    except (GoldenError, MutationError, ValueError) as error:
        raise fail(error, 2) from None
    seeds = given["seeds"] if given else [] if everything else seed
    seconds = round(time.perf_counter() - start, 1)
    row = {**summary(score), "opset": selection.opset, "seeds": seeds, "seconds": seconds}
    if output:
        write_file(output, [json.dumps(row, indent=1).encode(), b"\n"])
    if page:
        write_page(page, row, other)
    _print(row, other)
    if everything and selection.is_all:
        for line in unused_proofs(score.results):
            print(f"unused proof of equivalence: {line}")
    raise typer.Exit(0 if _passes(row) else 1)


def _passes(row: dict[str, Any]) -> bool:
    """Return whether every class, the total and the correct kernels pass."""
    shares = [counts["score"] for counts in row["classes"].values() if counts["score"] is not None]
    enough = all(share >= OF_A_CLASS for share in shares) and (row["score"] or 0) >= IN_TOTAL
    return bool(enough and not row["false_alarms"])


def _read(file: Path) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(file.read_text())
        if not all(isinstance(row[key], kind) for key, kind in (("names", list), ("classes", dict))):
            raise KeyError("names")
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None
    except (KeyError, TypeError, json.JSONDecodeError):
        raise ValueError(f"{file}: not the output of a run; write one with --output") from None
    return row


def _print(row: dict[str, Any], other: dict[str, Any] | None) -> None:
    mutations = [_cells(name, counts) for name, counts in row["mutations"].items()]
    print(align_columns([["mutation", *COUNTS, "score"], *mutations], figures=True))
    for each in row["survivors"]:
        print(f"survived: {each['kind']}: {each['name']}: {each['message']}")
    for line in row["untried"]:
        print(f"not tried: {line} (Python kernels do not support complex tensors)")
    for line in row["false_alarms"]:
        print(f"false alarm: {line}")
    before = {name: percent(counts["score"]) for name, counts in other["classes"].items()} if other else {}
    lines = [
        [*_cells(name, counts), *([before.get(name, "-")] if other else [])]
        for name, counts in row["classes"].items()
    ]
    total = [*_cells("all", row), *([percent(other["score"])] if other else [])]
    head = ["class", *COUNTS, "score", *(["before"] if other else [])]
    print(align_columns([head, *lines, total], figures=True))


def _cells(name: str, counts: dict[str, Any]) -> list[str]:
    return [name, *(str(counts[field]) for field in COUNTS), percent(counts["score"])]


if __name__ == "__main__":
    app(prog_name="python -m tools.mutation")
