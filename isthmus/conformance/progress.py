"""What people see while cases run, and the summary after them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from isthmus.conformance.results import BAD, KNOWN, NOT_CLAIMED, PASSED, STATUSES, CaseResult

if TYPE_CHECKING:
    from isthmus.conformance.run import Run

_SHOWN_PER_OPERATOR = 3  # failures of one operator that are printed as they come


def say(line: str) -> None:
    """A line for people, on standard error."""
    print(f"isthmus: {line}", file=sys.stderr, flush=True)


class Bar:
    """A progress bar on standard error; nothing where that is no terminal."""

    def __init__(self, what: str) -> None:
        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(
            *columns, console=self._console, transient=True, disable=not sys.stderr.isatty()
        )
        self._task = self._progress.add_task(what, total=None)

    def at(self, name: str, done: int, total: int) -> None:
        """Show where it is."""
        self._progress.update(self._task, description=name, completed=done, total=total)

    def advance(self, name: str) -> None:
        """One more is done."""
        self._progress.update(self._task, description=name, advance=1)

    def print(self, line: str) -> None:
        """A line above the bar."""
        self._console.print(Text(line), soft_wrap=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class RunProgress(Bar):
    """Counts results, and prints the first failures of each operator."""

    def __init__(self) -> None:
        super().__init__("cases")
        self._printed: Counter[str] = Counter()

    def __call__(self, result: CaseResult) -> None:
        """Take a result."""
        self.advance(result.operator)
        if result.status not in BAD:
            return
        self._printed[result.operator] += 1
        if self._printed[result.operator] <= _SHOWN_PER_OPERATOR:
            self.print(f"{result.status.upper()} {result.title}: {result.message}")
        elif self._printed[result.operator] == _SHOWN_PER_OPERATOR + 1:
            self.print(f"{result.status.upper()} {result.operator}: and more, see the report")


def print_summary(run: Run) -> None:
    """Print a table by family, what is stale, and one line that says it all."""
    _table(run)
    for line in run.stale:
        print(f"stale: {line}")
    counts = Counter(result.status for result in run.results)
    coverage = run.head.get("golden", {}).get("coverage")
    if coverage:
        print(coverage)
    if not run.judged:
        print("nothing was judged; `isthmus conform list` prints what the libraries claim")
    operators = {r.operator for r in run.results if r.status != NOT_CLAIMED and r.case}
    absent = sum(len(names) for names in run.missing.values())
    parts = [f"{counts[status]} {status}" for status in STATUSES if counts[status]]
    parts += [f"{len(run.stale)} stale"] if run.stale else []
    parts += [f"{absent} operators that no library has"] if absent else []
    verdict = "FAILED" if run.failed else "passed"
    print(
        f"{verdict}: driver {run.head['driver']}, {len(operators)} operators, {', '.join(parts) or 'no cases'}"
    )


def _table(run: Run) -> None:
    heads = ("family", "operators", PASSED, "failed", KNOWN, NOT_CLAIMED, "no kernel", "worst ulp")
    rows = [_row(family, run) for family in sorted({r.family for r in run.results} | set(run.missing))]
    print_table(heads, rows, lambda row: "red" if row[3] != "0" else "")


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], style: Callable[[Sequence[str]], str] = lambda _: ""
) -> None:
    """Print a table; where standard output is no terminal, tab-separated."""
    if not sys.stdout.isatty():  # whole words for grep
        for row in [heads, *rows]:
            print("\t".join(row))
        return
    table = Table(*heads, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*row, style=style(row))
    Console().print(table)


def _row(family: str, run: Run) -> list[str]:
    results = [result for result in run.results if result.family == family]
    counts = Counter(result.status for result in results)
    worst = max((r.worst["ulps"] or 0.0 for r in results if r.worst and r.status == PASSED), default=0.0)
    return [
        family,
        str(len({result.operator for result in results})),
        str(counts[PASSED]),
        str(sum(counts[status] for status in BAD)),
        str(counts[KNOWN]),
        str(counts[NOT_CLAIMED]),
        str(len(run.missing.get(family, ()))),
        f"{worst:.3g}",
    ]
