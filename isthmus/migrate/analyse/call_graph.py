"""Functions of a project whose calls reach code that must be ported by hand (IM412).

Followed are functions by name, methods through ``self``, ``super()`` and base classes, instances of the project's
classes in variables and attributes, and functions passed as arguments. Not followed: overriding methods of
subclasses, containers, and return values.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

from isthmus.migrate.analyse.calls import Facts, gather
from isthmus.migrate.analyse.resolve import Symbols
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Project, ProjectDetector
from isthmus.migrate.source.third_party import library

_PORTED = ("IM1", "IM3", "IM4", "IM5")  # findings that prevent a function from running on the target
_RUNS = frozenset({"IM129"})  # of these, those with which it still runs: a setting that has no effect
_SHOWN = 8  # functions of a chain


class Reason(NamedTuple):
    """Why a function does not run on the target."""

    subject: str
    code: str
    path: str
    line: int


def judge(project: Project) -> Iterator[Finding]:
    """Yield a finding for every function that reaches one that must be ported by hand."""
    symbols = Symbols(project.facts)
    reasons = _reasons(project, symbols)
    step = _propagate(reasons, _callers(project.facts, symbols))
    for name, place in sorted(symbols.functions.items()):
        if name in step:
            yield _finding(name, place, step, reasons, symbols)


def _reasons(project: Project, symbols: Symbols) -> dict[str, Reason]:
    """Return the functions with findings of their own, by name."""
    around = _Around(symbols.functions)
    reasons: dict[str, Reason] = {}
    for each in project.findings:
        name = around.at(each.path, each.line)
        is_ported = each.code.startswith(_PORTED) and each.code not in _RUNS
        if name and each.severity is Severity.MANUAL and is_ported:
            reasons.setdefault(name, Reason(each.subject, each.code, each.path, each.line))
    imported = _imported(project.findings)
    for facts in project.facts:
        for used in sorted(facts.references):
            place = symbols.functions.get(used.scope)
            found = library(used.name) if used.absolute and place else None
            if place and found and (place.path, found[0]) in imported:
                reasons.setdefault(used.scope, Reason(used.name, found[1].code, place.path, place.line))
    return reasons


def _imported(findings: list[Finding]) -> set[tuple[str, str]]:
    """Return (file, library) pairs that must be replaced by hand, without optional imports."""
    libraries = [each for each in findings if each.code == "IM301" and each.severity is Severity.MANUAL]
    return {(each.path, found[0]) for each in libraries if (found := library(each.subject))}


class _Around:
    """Lookup of the function that contains a line."""

    def __init__(self, functions: dict[str, Finding]) -> None:
        self._lines: dict[str, dict[int, str]] = defaultdict(dict)
        for name, place in sorted(functions.items(), key=lambda each: each[1].line):  # inner ones last
            self._lines[place.path].update(dict.fromkeys(range(place.line, place.end_line + 1), name))

    def at(self, path: str, line: int) -> str:
        return self._lines.get(path, {}).get(line, "")


def _callers(found: list[Facts], symbols: Symbols) -> dict[str, set[str]]:
    callers: dict[str, set[str]] = defaultdict(set)
    for facts in found:
        for reference in facts.references:
            if reference.scope in symbols.functions:
                for callee in symbols.callees(reference):
                    callers[callee].add(reference.scope)
    return callers


def _propagate(reasons: dict[str, Reason], callers: dict[str, set[str]]) -> dict[str, str]:
    """Return for each function its callee on the shortest path to a reason."""
    step: dict[str, str] = {}
    pending = deque(sorted(reasons))
    while pending:
        callee = pending.popleft()
        for caller in sorted(callers.get(callee, ())):
            if caller not in step and caller not in reasons:
                step[caller] = callee
                pending.append(caller)
    return step


def _finding(
    name: str, place: Finding, step: dict[str, str], reasons: dict[str, Reason], symbols: Symbols
) -> Finding:
    chain = [name]
    while chain[-1] in step:
        chain.append(step[chain[-1]])
    reason = reasons[chain[-1]]
    shown = [symbols.short(each, chain[0]) for each in chain]
    if len(shown) > _SHOWN:
        shown[_SHOWN // 2 : -_SHOWN // 2] = ["..."]
    said = f"reaches {reason.subject} ({reason.code}, {reason.path}:{reason.line}): {' -> '.join(shown)}"
    return place._replace(
        code="IM412",
        severity=Severity.REVIEW,
        end_line=place.line,
        subject=name,
        message=said,
        advice="it runs on the target once that is replaced; until then avoid this call",
    )


DETECTOR = ProjectDetector(gather, judge)
