"""The progress of a conformance run, and its summary."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from isthmus.conformance.results import (
    BAD,
    DRIVER_FAMILY,
    KNOWN,
    NO_KERNEL,
    NOT_CLAIMED,
    NOT_RUN,
    PASSED,
    STATUSES,
    CaseResult,
)
from isthmus_common.progress import Bar
from isthmus_common.tables import print_table
from isthmus_common.text import count

if TYPE_CHECKING:
    from isthmus.conformance.run import Run

_SHOWN_PER_OPERATOR = 3  # failures printed for one operator during the run
_NAMED = 4  # operators named beside a reason
_REASONS = 12  # reasons printed, and entries of known failures


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
            for line in describe_failure(result):
                self.print(line)
        elif self._printed[result.operator] == _SHOWN_PER_OPERATOR + 1:
            self.print(f"{result.status.upper()} {result.operator}: more failures are in the report")


def describe_failure(result: CaseResult) -> list[str]:
    """Return the lines about a failure: message, first wrong element, probable mistake, command."""
    lines = [f"{result.status.upper()} {result.title}: {result.message}"]
    if first := result.first:
        where = f"{first['output']}[{', '.join(map(str, first['index']))}]"
        error = "" if first["ulps"] is None else f", {first['ulps']:.4g} ulp apart"
        allowed = f"allowed {first['allowed']:.3g}: " if first["allowed"] else ""
        lines.append(
            f"  first wrong: {where} is {first['got']}, expected {first['expected']}{error} "
            f"({allowed}{result.tolerance})"
        )
    lines += [f"  probably: {result.guess}"] if result.guess else []
    lines += [f"  {result.command}"] if result.command else []
    return lines


def print_summary(run: Run) -> None:
    """Print a table by family, stale known failures, what was not run, and one line with the verdict."""
    _table(run)
    for line in run.stale:
        print(f"stale: {line}")
    for status in (NOT_CLAIMED, NOT_RUN):
        _print_reasons([result for result in run.results if result.status == status])
    _print_entries([result for result in run.results if result.status == NOT_RUN])
    counts: Counter[str] = Counter()
    for result in run.results:
        counts[result.status] += result.cases
    if demands := run.head.get("demands"):
        demanded = count(len(demands["operators"]), "operator")
        print(f"tier {demands['tier']} demands {demanded} and {count(demands['cases'], 'case')}")
    coverage = run.head.get("golden", {}).get("coverage")
    if coverage:
        print(coverage)
    if not run.judged:
        print("no case was judged; `isthmus conform list` prints the operators that the libraries claim")
    absent = len(_without_kernel(run.results))
    parts = [f"{counts[status]} {status}" for status in STATUSES if counts[status]]
    parts += [f"{len(run.stale)} stale"] if run.stale else []
    parts += [f"{count(absent, 'operator')} without a kernel"] if absent else []
    verdict = "FAILED" if run.failed else "NOT RUN" if run.incomplete else "passed"
    verdict = "INTERRUPTED" if run.interrupted else verdict
    functions = len(_tested(result for result in run.results if result.family == DRIVER_FAMILY))
    operators = len(_tested(run.results)) - functions
    tested = [count(functions, "driver function")] if functions else []
    tested += [count(operators, "operator")] if operators or not functions else []
    print(f"{verdict}: driver {run.head['driver']}, {', '.join([*tested, *(parts or ['no cases'])])}")


def _print_reasons(results: list[CaseResult]) -> None:
    """Print the reasons for which cases of one status were not run, those of most cases first."""
    reasons: defaultdict[str, list[CaseResult]] = defaultdict(list)
    for result in results:
        reasons[result.message.removeprefix(f"{result.operator} ")].append(result)
    ordered = sorted(reasons.items(), key=lambda item: -sum(result.cases for result in item[1]))
    for reason, rows in ordered[:_REASONS]:
        names = sorted({row.operator for row in rows})
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        gated = count(sum(row.cases for row in rows), "case")
        print(f"{rows[0].status}: {gated}: {reason}: {', '.join(names[:_NAMED])}{more}")
    if rest := ordered[_REASONS:]:
        gated = count(sum(row.cases for _, rows in rest for row in rows), "case")
        print(f"{results[0].status}: {gated}: {count(len(rest), 'other reason')}; --output writes all")


def _print_entries(results: list[CaseResult]) -> None:
    """Print entries for the chip's file that allow cases not to run, those of most cases first."""
    entries: Counter[tuple[str, str]] = Counter()
    for result in results:
        operator, why = result.operator, result.message.replace("[", "[[]")
        if result.family == DRIVER_FAMILY:  # many optional functions for one reason
            operator, why = "driver::*", "* absent" if why.endswith(" absent") else why
        entries[operator, why] += result.cases
    if entries:
        print(
            "if the chip lacks it on purpose, add to the `known_failures` of its driver.toml, with a reason:"
        )
    for (operator, why), _ in entries.most_common(_REASONS):
        keys = {"operator": operator, "why": why, "reason": ""}
        print("[[not_run]]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items()), sep="\n")
    if len(entries) > _REASONS:
        print(f"# and {len(entries) - _REASONS} more alike")


def _tested(results: Iterable[CaseResult]) -> set[str]:
    """Return the operators and driver functions of which a case ran."""
    return {result.operator for result in results if result.judged and result.case}


def _without_kernel(results: Iterable[CaseResult]) -> set[str]:
    return {result.operator for result in results if NO_KERNEL in result.message}


def _table(run: Run) -> None:
    heads = ("family", "operators", PASSED, "failed", KNOWN, NOT_RUN, NOT_CLAIMED, "no kernel", "worst ulp")
    rows = [_row(family, run) for family in sorted({r.family for r in run.results})]
    print_table(heads, rows, style=lambda row: "red" if row[3] != "0" else "yellow" if row[5] != "0" else "")


def _row(family: str, run: Run) -> list[str]:
    results = [result for result in run.results if result.family == family]
    counts: Counter[str] = Counter()
    for result in results:
        counts[result.status] += result.cases
    worst = max((r.worst["ulps"] or 0.0 for r in results if r.worst and r.status == PASSED), default=0.0)
    failed = sum(counts[status] for status in BAD)
    absent = _without_kernel(results)
    skipped = counts[NOT_RUN], counts[NOT_CLAIMED]
    numbers = (len(_tested(results)), counts[PASSED], failed, counts[KNOWN], *skipped, len(absent))
    return [family, *map(str, numbers), f"{worst:.3g}"]
