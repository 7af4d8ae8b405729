"""Results of cases, sent from workers to the report."""

from dataclasses import dataclass, field
from typing import Any

from isthmus.conformance.executor import Outcome
from isthmus.conformance.golden import Case

PASSED, FAILED, CRASHED, KNOWN, NOT_CLAIMED = "passed", "failed", "crashed", "known failure", "not claimed"
STATUSES = (PASSED, FAILED, CRASHED, KNOWN, NOT_CLAIMED)
BAD = (FAILED, CRASHED)
DRIVER_FAMILY = "driver"


@dataclass
class CaseResult:
    """The result of a case on a library.

    Attributes:
        family: family of the operator; "driver" for driver functions.
        library: library of the kernel; "" for driver functions.
        operator: overload; "driver::" and the function's name for driver functions.
        dtype: tested dtype; "" for driver functions.
        case: id within operator and dtype.
        layout: layout of the case.
        status: one of STATUSES.
        message: the reason, in one line.
        seconds: time of the case, comparisons included.
        worst: the largest error: output, index, got, expected, ulps, tolerances; None without floats.
        histogram: elements by error in ulps (judge.BINS), of all float results.
        tolerance: tolerance and its reason.
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

    @property
    def title(self) -> str:
        """Operator, dtype and case, for messages."""
        return " ".join(part for part in (self.operator, self.dtype, self.case) if part)

    def to_json(self) -> dict[str, Any]:
        """Return the result as a dictionary for JSON."""
        return dict(vars(self))


def of_outcome(family: str, library: str, case: Case, outcome: Outcome, seconds: float) -> CaseResult:
    """Make the result of an operator's case."""
    allowed = case.tolerance
    text = "exact" if not (allowed.ulp or allowed.accumulate) else f"{allowed.ulp:g} ulp"
    if allowed.accumulate:
        text += f" + {allowed.accumulate:g} eps x magnitude"
    text = f"{text}: {allowed.reason}" if allowed.reason else text
    place = (family, library, case.operator, case.dtype, case.id, case.layout)
    errors = (_worst_element(outcome), _histogram(outcome), text)
    return CaseResult(*place, outcome.status, outcome.message, seconds, *errors)


def _worst_element(outcome: Outcome) -> dict[str, Any] | None:
    found = [(label, verdict.worst) for label, verdict in outcome.verdicts if verdict.worst]
    if not found:
        return None
    label, worst = max(found, key=lambda pair: (pair[1].tolerances, pair[1].ulps))
    row: dict[str, Any] = {"output": label, **vars(worst)}
    # JSON has no infinity: null means that the error is infinite.
    for key in ("ulps", "tolerances"):
        row[key] = row[key] if row[key] < float("inf") else None
    return row


def _histogram(outcome: Outcome) -> list[int]:
    rows = [verdict.histogram for _, verdict in outcome.verdicts if verdict.histogram]
    return [sum(column) for column in zip(*rows, strict=True)]
