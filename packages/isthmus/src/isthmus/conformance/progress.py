"""The progress of a conformance run, and its summary."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from isthmus.conformance.results import BAD, KNOWN, NOT_CLAIMED, PASSED, STATUSES, CaseResult
from isthmus_common.progress import Bar
from isthmus_common.tables import print_table
from isthmus_common.text import count

if TYPE_CHECKING:
    from isthmus.conformance.run import Run

_SHOWN_PER_OPERATOR = 3  # failures printed for one operator during the run


class RunProgress(Bar):
    """A progress bar that counts results and prints the first failures of each operator."""

    def __init__(self) -> None:
        super().__init__("cases")
        self._printed: Counter[str] = Counter()

    def __call__(self, result: CaseResult) -> None:
        """Count a result."""
        self.advance(result.operator)
        if result.status not in BAD:
            return
        self._printed[result.operator] += 1
        if self._printed[result.operator] <= _SHOWN_PER_OPERATOR:
            self.print(f"{result.status.upper()} {result.title}: {result.message}")
        elif self._printed[result.operator] == _SHOWN_PER_OPERATOR + 1:
            self.print(f"{result.status.upper()} {result.operator}: more failures are in the report")


def print_summary(run: Run) -> None:
    """Print a table by family, stale known failures, and one line with the verdict."""
    _table(run)
    for line in run.stale:
        print(f"stale: {line}")
    counts = Counter(result.status for result in run.results)
    coverage = run.head.get("golden", {}).get("coverage")
    if coverage:
        print(coverage)
    if not run.judged:
        print("no case was judged; `isthmus conform list` prints the operators that the libraries claim")
    operators = {r.operator for r in run.results if r.status != NOT_CLAIMED and r.case}
    absent = sum(len(names) for names in run.missing.values())
    parts = [f"{counts[status]} {status}" for status in STATUSES if counts[status]]
    parts += [f"{len(run.stale)} stale"] if run.stale else []
    parts += [f"{count(absent, 'operator')} without a kernel"] if absent else []
    verdict = "FAILED" if run.failed else "passed"
    judged = f"driver {run.head['driver']}, {count(len(operators), 'operator')}"
    print(f"{verdict}: {judged}, {', '.join(parts) or 'no cases'}")


def _table(run: Run) -> None:
    heads = ("family", "operators", PASSED, "failed", KNOWN, NOT_CLAIMED, "no kernel", "worst ulp")
    rows = [_row(family, run) for family in sorted({r.family for r in run.results} | set(run.missing))]
    print_table(heads, rows, style=lambda row: "red" if row[3] != "0" else "")


def _row(family: str, run: Run) -> list[str]:
    results = [result for result in run.results if result.family == family]
    counts = Counter(result.status for result in results)
    worst = max((r.worst["ulps"] or 0.0 for r in results if r.worst and r.status == PASSED), default=0.0)
    failed, absent = sum(counts[status] for status in BAD), len(run.missing.get(family, ()))
    operators = len({result.operator for result in results})
    numbers = (operators, counts[PASSED], failed, counts[KNOWN], counts[NOT_CLAIMED], absent)
    return [family, *map(str, numbers), f"{worst:.3g}"]
