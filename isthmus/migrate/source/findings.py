"""Findings of the migration tools: code of the rule, place, severity, advice."""

import enum
from typing import NamedTuple


class Severity(enum.Enum):
    """Who has to act on a finding."""

    ADVICE = "advice"  # optional, for speed or precision
    AUTOMATIC = "automatic"  # done by `isthmus migrate convert`
    REVIEW = "review"  # done by convert, or works unchanged; check it
    MANUAL = "manual"  # manual work


class Finding(NamedTuple):
    """A finding.

    Attributes:
        code: of the rule, ``"IM101"``; `isthmus migrate rules` lists them.
        severity: who has to act.
        path: path of the file relative to the analysed folder, with ``/``.
        line: first line, from 1; 0 for the whole file.
        end_line: last line.
        subject: the name it is about, ``"torch.cuda.synchronize"``.
        message: what was found.
        advice: what to do about it.
        column: column of the first character, from 1.
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
