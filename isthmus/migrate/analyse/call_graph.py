"""Functions of a project whose calls reach code that must be ported by hand (IM412).

The data flow shows what a call runs: functions by name, methods of instances, modules, wrapped or not, and functions
passed as arguments. Not followed are overriding methods of subclasses.
"""

import ast
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from isthmus.migrate.analyse.detector import Project, ProjectDetector
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module
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


def gather(module: Module) -> dict[str, Finding]:
    """Return findings at the definitions of the functions of a module, without message, by their dotted names."""
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    functions = [*module.of(ast.FunctionDef), *module.of(ast.AsyncFunctionDef)]
    names = map(module.names.defined, functions)
    places = (module.finding("", Severity.REVIEW, each, "", "", "") for each in functions)
    return dict(zip(names, places, strict=True))


def judge(project: Project) -> Iterator[Finding]:
    """Yield a finding for every function that reaches one that must be ported by hand."""
    places = {name: place for found in project.facts for name, place in found.items()}
    around = _Around(places)
    reasons = _reasons(project, places, around)
    step = _propagate(reasons, _callers(project, around))
    modules = {facts.module for facts in project.flow.facts}
    for name, place in sorted(places.items()):
        if name in step:
            yield _finding(name, place, step, reasons, modules)


class _Around:
    """Lookup of the function that contains a line."""

    def __init__(self, places: Mapping[str, Finding]) -> None:
        self._lines: dict[str, dict[int, str]] = defaultdict(dict)
        for name, place in sorted(places.items(), key=lambda each: each[1].line):  # inner ones last
            self._lines[place.path].update(dict.fromkeys(range(place.line, place.end_line + 1), name))

    def at(self, path: str, line: int) -> str:
        return self._lines.get(path, {}).get(line, "")

    def of(self, place: str) -> str:
        path, _, line = place.rpartition(":")
        return self.at(path, int(line))


def _reasons(project: Project, places: Mapping[str, Finding], around: _Around) -> dict[str, Reason]:
    """Return the functions with findings of their own, by name."""
    reasons: dict[str, Reason] = {}
    for each in project.findings:
        name = around.at(each.path, each.line)
        is_ported = each.code.startswith(_PORTED) and each.code not in _RUNS
        if name and each.severity is Severity.MANUAL and is_ported:
            reasons.setdefault(name, Reason(each.subject, each.code, each.path, each.line))
    imported = _imported(project.findings)
    called = {(each.callee, around.of(each.place)) for facts in project.flow.facts for each in facts.calls}
    for used, name in sorted(called):
        place, found = places.get(name), library(used)
        if place and found and (place.path, found[0]) in imported:
            reasons.setdefault(name, Reason(used, found[1].code, place.path, place.line))
    return reasons


def _imported(findings: list[Finding]) -> set[tuple[str, str]]:
    """Return (file, library) pairs that must be replaced by hand, without optional imports."""
    libraries = [each for each in findings if each.code == "IM301" and each.severity is Severity.MANUAL]
    return {(each.path, found[0]) for each in libraries if (found := library(each.subject))}


def _callers(project: Project, around: _Around) -> dict[str, set[str]]:
    callers: dict[str, set[str]] = defaultdict(set)
    for facts in project.flow.facts:
        for call in facts.calls:
            if caller := around.of(call.place):
                for function in project.flow.runs(call):
                    callers[function].add(caller)
    return callers


def _propagate(reasons: Mapping[str, Reason], callers: Mapping[str, set[str]]) -> dict[str, str]:
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
    name: str, place: Finding, step: dict[str, str], reasons: dict[str, Reason], modules: set[str]
) -> Finding:
    chain = [name]
    while chain[-1] in step:
        chain.append(step[chain[-1]])
    reason = reasons[chain[-1]]
    shown = [_short(each, name, modules) for each in chain]
    if len(shown) > _SHOWN:
        shown[_SHOWN // 2 : -_SHOWN // 2] = ["..."]
    said = f"reaches {reason.subject} ({reason.code}, {reason.path}:{reason.line}): {' -> '.join(shown)}"
    return place._replace(
        code="IM412",
        end_line=place.line,
        subject=name,
        message=said,
        advice="it runs on the target once that is replaced; until then avoid this call",
    )


def _short(name: str, beside: str, modules: set[str]) -> str:
    """Return a function's name for messages, without its module if ``beside`` is in the same one."""
    module = _module(name, modules)
    said = name.removeprefix(f"{module}.")
    return said if module == _module(beside, modules) else f"{module.rpartition('.')[2]}.{said}"


def _module(name: str, modules: set[str]) -> str:
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


DETECTOR = ProjectDetector(gather, judge)
