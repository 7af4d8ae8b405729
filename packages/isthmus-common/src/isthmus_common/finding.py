"""Findings of checks, as `isthmus doctor` and `isthmus cluster preflight` report them, and how checks are run."""

import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple


class State(enum.StrEnum):
    """Severity of a finding; only FAIL makes `isthmus doctor` exit with 1."""

    OK = "ok"
    WARNING = "warning"
    FAIL = "fail"


_MARKS = {State.OK: "ok", State.WARNING: "warn", State.FAIL: "FAIL"}


class Finding(NamedTuple):
    """The result of a check, one line of a report.

    Attributes:
        subject: what was checked.
        state: severity.
        text: what was found.
        remedy: how to fix it; "" only if the state is OK.
    """

    subject: str
    state: State
    text: str
    remedy: str = ""


Check = Callable[[], Iterator[Finding]]


def line(finding: Finding) -> str:
    """Format a finding with its remedy in one line."""
    text = "; ".join(filter(None, (finding.text, finding.remedy)))
    return f"{_MARKS[finding.state]:<4}  {finding.subject:<12} {text}"


def ok(subject: str, text: str) -> Finding:
    """Make a finding without a problem."""
    return Finding(subject, State.OK, text)


def warning(subject: str, text: str, remedy: str) -> Finding:
    """Make a finding of a possible problem or a likely mistake."""
    return Finding(subject, State.WARNING, text, remedy)


def fail(subject: str, text: str, remedy: str) -> Finding:
    """Make a finding of a failure."""
    return Finding(subject, State.FAIL, text, remedy)


def invalid_option(subject: str, message: str) -> Finding:
    """Make the finding of an import of PyTorch that raised isthmus_common.options.InvalidOption with that message."""
    text, _, remedy = message.removeprefix("isthmus: ").partition("; ")
    return fail(
        subject, f"`import torch` ends the process: {text}", remedy or "`isthmus env` says what it takes"
    )


OWN_DEFECT = "see the lines around it; if they are ok, report this as a defect of `isthmus doctor`"


def run_check(check: Check, subject: str, remedy: str = OWN_DEFECT) -> list[Finding]:
    """Run a check and return its findings; an exception becomes the last one, with the given remedy."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except Exception as error:  # other checks may show the cause
        findings.append(fail(subject, describe(error), remedy))
    return findings


def run_checks(subject: str, *checks: Check) -> Iterator[Finding]:
    """Run several checks independently and yield their findings."""
    for check in checks:
        yield from run_check(check, subject)


def describe(error: BaseException) -> str:
    """Describe an exception in one line, with its first cause."""
    line = (str(error).strip().splitlines() or [""])[0]
    text = f"{type(error).__name__}: {line}" if line else type(error).__name__
    return f"{text} <- {describe(error.__cause__)}" if error.__cause__ else text
