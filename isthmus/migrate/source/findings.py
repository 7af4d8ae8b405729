"""Findings of the migration tools: what was found, where, how it ends, and the edits that convert it."""

import enum
from typing import NamedTuple

from isthmus.migrate.source.edits import Edit


class Severity(enum.Enum):
    """How a finding ends, and who has to act."""

    NONE = "none"  # not applicable: right as it is on every accelerator
    ADVICE = "advice"  # optional, for speed or precision
    AUTOMATIC = "automatic"  # changed by `isthmus migrate convert`
    REVIEW = "review"  # left unchanged, since the source does not show what it means: check it
    MANUAL = "manual"  # left unchanged: manual work


LEFT = frozenset({Severity.REVIEW, Severity.MANUAL})


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
