"""Results of mutants, the mutation score by class, and its summary as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.mutation import equivalent
from tools.mutation.mutant import CLASSES
from tools.mutation.trial import Trial


@dataclass
class Result:
    """Outcome of a mutant.

    Attributes:
        kernel: the operator, or the source file.
        users: operators that execute the line of a source mutant, separated by spaces.
        kind: class of the mistake.
        mutation: mutation operator.
        name: identifies the mutant across revisions.
        status: "caught", "survived" or "equivalent".
        message: the suite's message, or the proof of equivalence.
        case: the case that caught it.
        raised: whether it was caught by an exception, not by its results.
    """

    kernel: str
    users: str
    kind: str
    mutation: str
    name: str
    status: str = ""
    message: str = ""
    case: str = ""
    raised: bool = False

    def equivalence(self) -> equivalent.Equivalence | None:
        """Return the proof that no input distinguishes the mutant from the correct kernel, if there is one."""
        operators = self.kernel if "::" in self.kernel else self.users
        return equivalent.find(self.name.partition(": ")[2], operators)


@dataclass
class Score:
    """A finished run: results of all mutants, correct kernels that the suite rejected, operators left out."""

    results: list[Result] = field(default_factory=list)
    false_alarms: list[str] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)


def complete(blank: Result, trial: Trial) -> Result:
    """Complete a result with its trial."""
    blank.message, blank.case, blank.raised = trial.message, trial.case, trial.raised
    blank.status = "caught" if trial.caught else "survived"
    if not trial.caught:
        entry = blank.equivalence()
        if entry:
            blank.status, blank.message = "equivalent", entry.proof
    return blank


def unused_proofs(results: Iterable[Result]) -> list[str]:
    """Return the patterns of mutants and operators that cover no survivor."""
    used = {r.equivalence() for r in results if r.status == "equivalent"}
    return [" | ".join(entry[:2]) for entry in equivalent.EQUIVALENCES if entry not in used]


def summary(score: Score) -> dict[str, Any]:
    """Return the score for JSON: overall, by class and by mutation operator, with survivors and equivalents."""

    def counts(results: Iterable[Result]) -> dict[str, Any]:
        rows = list(results)
        number = {
            status: sum(r.status == status for r in rows) for status in ("caught", "survived", "equivalent")
        }
        judged = number["caught"] + number["survived"]
        share = number["caught"] / judged if judged else None
        return {"mutants": len(rows), **number, "raised": sum(r.raised for r in rows), "score": share}

    def by(key: str, names: Iterable[str]) -> dict[str, Any]:
        return {name: counts(r for r in score.results if getattr(r, key) == name) for name in names}

    def of(status: str) -> list[dict[str, Any]]:
        return [asdict(r) for r in score.results if r.status == status]

    return {
        **counts(score.results),
        "classes": by("kind", CLASSES),
        "mutations": by("mutation", sorted({r.mutation for r in score.results})),
        "survivors": of("survived"),
        "equivalents": of("equivalent"),
        "false_alarms": score.false_alarms,
        "untried": score.untried,
        "names": [r.name for r in score.results],
    }
