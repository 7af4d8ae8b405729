"""Findings of the migration tools: code of the rule, place, severity, advice."""

import enum
from typing import NamedTuple


class Severity(enum.Enum):
    """Who has to do something about a finding."""

    ADVICE = "advice"  # nobody has to: it would be faster or more precise
    AUTOMATIC = "automatic"  # `isthmus migrate convert` does it
    REVIEW = "review"  # convert does it or it may work as it is; a person should look
    MANUAL = "manual"  # only a person can


class Finding(NamedTuple):
    """One finding.

    Attributes:
        code: of the rule, ``"IM101"``; `isthmus migrate rules` lists them.
        severity: who has to do something.
        path: of the file, from the folder on that was asked for, with ``/``.
        line: first line, from 1 on; 0 is the file as a whole.
        end_line: last line.
        subject: the name it is about, ``"torch.cuda.synchronize"``.
        message: what was found.
        advice: what to do about it.
        column: of the first character, from 1 on.
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
