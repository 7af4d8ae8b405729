"""Results of cases, sent from workers to the report."""

from dataclasses import dataclass, field
from typing import Any

from isthmus.conformance.cases import results_of
from isthmus.conformance.executor import Outcome
from isthmus.conformance.golden import Case
from isthmus.conformance.judge import FORMATS, Worst

PASSED, FAILED, CRASHED, KNOWN = "passed", "failed", "crashed", "known failure"
NOT_RUN = "not run"  # although the run demands it
NOT_CLAIMED = "not claimed"  # not run, as the run does not demand it or the chip's file allows
STATUSES = (PASSED, FAILED, CRASHED, KNOWN, NOT_RUN, NOT_CLAIMED)
BAD = (FAILED, CRASHED)
NO_KERNEL = "no library has a kernel"
DRIVER_FAMILY = "driver"


@dataclass
class CaseResult:
    """The result of a case on a library.

    Attributes:
        family: family of the operator; "driver" for driver functions.
        library: library of the kernel; "" for driver functions.
        operator: overload; "driver::" and the function's name for driver functions.
        dtype: tested dtype; "" for driver functions.
        case: id within operator and dtype; "" for all cases of an operator.
        layout: layout of the case.
        status: one of STATUSES.
        message: the reason, in one line.
        seconds: time of the case, comparisons included.
        worst: the largest error: output, index, got, expected, ulps, tolerances; None without floats.
        histogram: elements by error in ulps (judge.BINS), of all float results.
        tolerance: tolerance and its reason.
        first: the first wrong element, as ``worst``, with the tolerance there.
        guess: the probable mistake, from :mod:`isthmus.conformance.diagnosis`.
        command: the command that runs a failed case alone.
        cases: number of cases that the result stands for.
    """

    family: str
    library: str
    operator: str
    dtype: str
    case: str
    layout: str = ""
    status: str = PASSED
    message: str = ""
    seconds: float = 0.0
    worst: dict[str, Any] | None = None
    histogram: list[int] = field(default_factory=list)
    tolerance: str = ""
    first: dict[str, Any] | None = None
    guess: str = ""
    command: str = ""
    cases: int = 1

    @property
    def id(self) -> str:
        """The name of the case in ``--case``: operator, dtype and case, separated by slashes."""
        return "/".join(part for part in (self.operator, self.dtype, self.case) if part)

    @property
    def judged(self) -> bool:
        """Whether the case ran."""
        return self.status not in (NOT_RUN, NOT_CLAIMED)

    @property
    def title(self) -> str:
        """Operator, dtype and case, for messages."""
        return " ".join(part for part in (self.operator, self.dtype, self.case) if part)

    def to_json(self) -> dict[str, Any]:
        """Return the result as a dictionary for JSON."""
        return dict(vars(self))


def of_outcome(family: str, library: str, case: Case, outcome: Outcome, seconds: float) -> CaseResult:
    """Make the result of an operator's case."""
    text = _describe_tolerance(case)
    place = (family, library, case.operator, case.dtype, case.id, case.layout)
    errors = (_worst_element(outcome), _histogram(outcome), text, _first_element(outcome))
    return CaseResult(*place, outcome.status, outcome.message, seconds, *errors, outcome.guess)


def _describe_tolerance(case: Case) -> str:
    allowed = case.tolerance
    if not any(expected.dtype in FORMATS for expected in results_of(case)):
        return "exact: no result is floating"
    text = f"{allowed.ulp:g} ulp" if allowed.ulp or allowed.accumulate else "exact"
    if allowed.accumulate:
        text += f" + {allowed.accumulate:g} eps x magnitude"
    return f"{text}: {allowed.reason}" if allowed.reason else text


def _worst_element(outcome: Outcome) -> dict[str, Any] | None:
    found = [(label, verdict.worst) for label, verdict in outcome.verdicts if verdict.worst]
    if not found:
        return None
    return _element(*max(found, key=lambda pair: (pair[1].tolerances, pair[1].ulps)))


def _first_element(outcome: Outcome) -> dict[str, Any] | None:
    found = [(label, verdict.first) for label, verdict in outcome.verdicts if verdict.first]
    return _element(*found[0]) if found else None


def _element(label: str, element: Worst) -> dict[str, Any]:
    row: dict[str, Any] = {"output": label, **vars(element)}
    # JSON has no infinity: null means that the error is infinite.
    for key in ("ulps", "tolerances"):
        row[key] = row[key] if row[key] < float("inf") else None
    return row


def _histogram(outcome: Outcome) -> list[int]:
    rows = [verdict.histogram for _, verdict in outcome.verdicts if verdict.histogram]
    return [sum(column) for column in zip(*rows, strict=True)]
