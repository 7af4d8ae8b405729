"""Results of mutants, the mutation score, and its summary as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.mutation import equivalent, reports
from tools.mutation.trial import Trial


@dataclass
class Result:
    """Outcome of a mutant.

    Attributes:
        family: of its operator.
        operator: whose kernel it was; for a source mutant, the operators of the family that execute it.
        mutation: mutation operator.
        detail: the changed part of the kernel.
        status: "caught", "survived" or "equivalent".
        message: the suite's message, or the proof of equivalence.
        case: the case that caught it.
        raised: whether it was caught by an exception, not by its results.
        place: file and line of a source mutant; "" for others.
    """

    family: str
    operator: str
    mutation: str
    detail: str
    status: str
    message: str = ""
    case: str = ""
    raised: bool = False
    place: str = ""


@dataclass
class Score:
    """A finished run: results of all mutants, correct kernels that the suite rejected, operators left out,
    unused proofs of equivalence.
    """

    results: list[Result] = field(default_factory=list)
    false_alarms: list[str] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)
    unused_proofs: list[str] = field(default_factory=list)


def settled(blank: Result, trial: Trial) -> Result:
    """Complete a result with its trial."""
    blank.message, blank.case, blank.raised = trial.message, trial.case, trial.raised
    blank.status = "caught" if trial.caught else "survived"
    if not trial.caught:
        entry = equivalent.find(blank.operator, blank.mutation, blank.detail)
        if entry:
            blank.status, blank.message = "equivalent", entry.proof
    return blank


def unused_proofs(results: Iterable[Result]) -> list[str]:
    """Return the proofs that cover no survivor: operators, mutation, detail."""
    used = [equivalent.find(r.operator, r.mutation, r.detail) for r in results if r.status == "equivalent"]
    return [" | ".join(entry[:3]) for entry in equivalent.EQUIVALENCES if entry not in used]


def summary(score: Score) -> dict[str, Any]:
    """Return the score for JSON: overall, by family and by mutation operator, with all survivors and equivalents."""

    def counts(results: Iterable[Result]) -> dict[str, Any]:
        rows = list(results)
        number = {
            status: sum(r.status == status for r in rows) for status in ("caught", "survived", "equivalent")
        }
        judged = number["caught"] + number["survived"]
        share = number["caught"] / judged if judged else None
        return {"mutants": len(rows), **number, "raised": sum(r.raised for r in rows), "score": share}

    def by(key: str) -> dict[str, Any]:
        names = sorted({getattr(r, key) for r in score.results})
        return {name: counts(r for r in score.results if getattr(r, key) == name) for name in names}

    chosen = ("survived", "equivalent")
    lists = {status: [asdict(r) for r in score.results if r.status == status] for status in chosen}
    reported = [asdict(r) for r in score.results if r.mutation == reports.MUTATION]
    return {
        **counts(score.results),
        "families": by("family"),
        "mutations": by("mutation"),
        "reports": reported,
        "survivors": lists["survived"],
        "equivalents": lists["equivalent"],
        "false_alarms": score.false_alarms,
        "untried": score.untried,
        "unused_proofs": score.unused_proofs,
    }
