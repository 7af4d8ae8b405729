"""Plant the reports of the bank and count those that the suite detects: ``python -m tools.mutation.bank``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.conformance import cache
from isthmus.conformance.golden import GoldenError
from isthmus_common.exits import fail
from isthmus_common.files import write_file
from isthmus_common.progress import Bar, say
from tools.mutation.bank import REPORTS, Report
from tools.mutation.bank.page import chinese_page, write_pages
from tools.mutation.run import MutationError, Runner, Selection
from tools.mutation.score import Result

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def main(
    match: Annotated[str, typer.Argument(help="Only threads that contain this text.")] = "",
    golden: Annotated[Path | None, typer.Option(help="Folder of golden data (default: the cache).")] = None,
    output: Annotated[Path | None, typer.Option(help="JSON file of the result.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="Page in docs to write, and its Chinese one in docs/zh.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write the page of this result; plant nothing.")] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 2,
) -> None:
    """Plant the reports of the bank in correct kernels.

    Exits with 0 if the suite detects all, with 1 if it misses one, and with 2 on invalid input.
    """
    try:
        if page:
            chinese_page(page)  # fail before the long run
        row = json.loads(report.read_text()) if report else _run(match, golden, jobs)
    except (GoldenError, MutationError, OSError, ValueError) as error:
        raise fail(error, 2) from None
    if output:
        write_file(output, [json.dumps(row, indent=1).encode(), b"\n"])
    if page:
        write_pages(page, row)
    found = sum(any(r["status"] == "caught" for r in each["results"]) for each in row["reports"])
    print(f"{found} of {len(row['reports'])} reports detected in {row['seconds']:.0f} s")
    raise typer.Exit(0 if found == len(row["reports"]) else 1)


def _run(match: str, golden: Path | None, jobs: int) -> dict[str, Any]:
    """Return the result as JSON: of each report, the result of each operator."""
    start = time.perf_counter()
    reports = [report for report in REPORTS if match in report.thread]
    reader = cache.golden(golden, say)
    names = ",".join(sorted({name for report in reports for name in report.operators}))
    selection = Selection(reader, names)
    wanted = [report.mutant(name) for report in reports for name in report.operators]
    results: dict[str, Result] = {}
    with Bar("reports") as bar:
        for result in Runner(selection, lambda step: None, jobs).trials(wanted):
            results[result.name] = result
            bar.at(result.kernel, len(results), len(wanted))
            if result.status != "caught":
                bar.print(f"{result.status}: {result.name}: {result.message}")
    return {
        "opset": selection.opset,
        "seconds": round(time.perf_counter() - start, 1),
        "reports": [{"thread": r.thread, "results": list(_of(r, results))} for r in reports],
    }


def _of(report: Report, results: dict[str, Result]) -> Iterator[dict[str, str]]:
    for name in report.operators:
        found = results[report.mutant(name).name]
        yield {"operator": name, "status": found.status, "case": found.case, "message": found.message}


if __name__ == "__main__":
    app(prog_name="python -m tools.mutation.bank")
