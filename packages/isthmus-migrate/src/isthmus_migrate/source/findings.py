"""Findings of the migration tools: what was found, where, how it ends, and the edits that convert it."""

import enum
from collections.abc import Iterable
from typing import Any, NamedTuple

from isthmus_migrate.source.edits import Edit


class Severity(enum.Enum):
    """The severity of a finding: how it ends, and who has to act."""

    NONE = "none"  # not applicable: right as it is on every accelerator
    ADVICE = "advice"  # optional, for speed or precision
    AUTOMATIC = "automatic"  # changed by `isthmus migrate convert`
    REVIEW = "review"  # left unchanged, since the source does not show what it means: check it
    MANUAL = "manual"  # left unchanged: manual work


RANKS = (Severity.NONE, Severity.ADVICE, Severity.AUTOMATIC, Severity.REVIEW, Severity.MANUAL)
LEFT = frozenset({Severity.REVIEW, Severity.MANUAL})
_ENDS = {
    Severity.NONE: "not applicable",
    Severity.ADVICE: "advice",
    Severity.AUTOMATIC: "changed",
    **dict.fromkeys(LEFT, "left"),
}


class Finding(NamedTuple):
    """A finding.

    Attributes:
        code: of the rule, ``"IM101"``; `isthmus migrate rules` lists them.
        severity: how it ends.
        path: path of the file relative to the analysed folder, with ``/``.
        line: first line, from 1; 0 for the whole file.
        end_line: last line.
        subject: the name it is about, ``"torch.cuda.synchronize"``.
        message: what was found.
        advice: what it becomes, what to do about it, or why it stays.
        column: column of the first character, from 1.
        edits: the change, if it is automatic.
        evidence: what shows that the change is right, beyond the text of the place itself.
    """

    code: str
    severity: Severity
    path: str
    line: int
    end_line: int
    subject: str
    message: str
    advice: str
    column: int = 1
    edits: tuple[Edit, ...] = ()
    evidence: str = ""

    @property
    def end(self) -> str:
        """The end of the finding: "changed", "left", "not applicable" or "advice"."""
        return _ENDS[self.severity]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, with the end and without the edits."""
        fields = self._asdict() | {"severity": self.severity.value, "end": self.end}
        del fields["edits"]
        return fields


def reach(findings: Iterable[Finding], severity: str) -> bool:
    """Whether any finding has a severity or a higher one; "never" is higher than all."""
    if severity == "never":
        return False
    least = RANKS.index(Severity(severity))
    return any(RANKS.index(each.severity) >= least for each in findings)
