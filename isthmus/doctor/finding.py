"""One line of the report, and checks whose own defects do not hide the others."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple


class State(enum.StrEnum):
    """How a thing is; only FAIL ends `isthmus doctor` with 1."""

    OK = "ok"
    WARNING = "warning"
    FAIL = "fail"


class Finding(NamedTuple):
    """One line of the report.

    Attributes:
        subject: what was looked at.
        state: whether it is as it should be.
        text: what was found.
        remedy: what to do about it; "" only where the state is OK.
    """

    subject: str
    state: State
    text: str
    remedy: str = ""


Check = Callable[[], Iterator[Finding]]


def ok(subject: str, text: str) -> Finding:
    """A thing as it should be."""
    return Finding(subject, State.OK, text)


def warning(subject: str, text: str, remedy: str) -> Finding:
    """A thing that works now and may not later, or is not what was meant."""
    return Finding(subject, State.WARNING, text, remedy)


def fail(subject: str, text: str, remedy: str) -> Finding:
    """A thing that does not work."""
    return Finding(subject, State.FAIL, text, remedy)


OWN_DEFECT = "see the lines around it; if they are ok, report this as a defect of `isthmus doctor`"


def safely(check: Check, subject: str, remedy: str = OWN_DEFECT) -> list[Finding]:
    """What a check finds; an exception becomes its last finding, with that remedy."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except Exception as error:  # the other checks may say why
        findings.append(fail(subject, describe(error), remedy))
    return findings


def each(subject: str, *checks: Check) -> Iterator[Finding]:
    """What several checks find, each as if it were alone."""
    for check in checks:
        yield from safely(check, subject)


def describe(error: BaseException) -> str:
    """An exception in one line, with the first cause where it has one."""
    line = (str(error).strip().splitlines() or [""])[0]
    text = f"{type(error).__name__}: {line}" if line else type(error).__name__
    return f"{text} <- {describe(error.__cause__)}" if error.__cause__ else text
