"""Functions of a project that run code to port by hand whenever they are called (IM412), once per file.

The data flow shows what a call runs: functions by name, methods of instances, modules, wrapped or not, and functions
passed as arguments. Not followed are overriding methods of subclasses, and calls in branches, which may not run.
"""

import ast
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from isthmus_common.text import count
from isthmus_migrate.analyse.detector import Project, ProjectDetector
from isthmus_migrate.source.blocks import runs_with
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS
from isthmus_migrate.source.third_party import library

_PORTED = ("IM1", "IM3", "IM4", "IM5")  # findings that prevent a function from running on the target
_RUNS = frozenset({"IM129"})  # findings with which it still runs: a setting that has no effect
_SHOWN = 8  # functions of a chain, and others of a file


class Reason(NamedTuple):
    """The reason why a function does not run on the target."""

    subject: str
    code: str
    path: str
    line: int


def gather(module: Module) -> tuple[dict[str, Finding], set[str]]:
    """Return findings at a module's functions, without message, by name, and the places of calls in branches."""
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    functions = [*module.of(ast.FunctionDef), *module.of(ast.AsyncFunctionDef)]
    names = map(module.names.defined, functions)
    places = (module.finding("", Severity.REVIEW, each, "", "", "") for each in functions)
    branched = (each for each in module.of(ast.Call) if _is_branched(module, each))
    lines = {f"{module.source.name}:{module.place(each.lineno)[1]}" for each in branched}
    return dict(zip(names, places, strict=True)), lines


def _is_branched(module: Module, call: ast.Call) -> bool:
    """Whether a call may not run when its function does."""
    block = runs_with(module, call)
    is_function = bool(block) and isinstance(block[0], (*FUNCTIONS, ast.Lambda))
    return bool(block) and not (is_function and block[0] in module.enclosing(call))


def judge(project: Project) -> Iterator[Finding]:
    """Yield a finding for every file with functions that reach one that must be ported by hand."""
    places = {name: place for functions, _ in project.facts for name, place in functions.items()}
    around = _Around(places, {each for _, branched in project.facts for each in branched})
    reasons = _reasons(project, places, around)
    step = _propagate(reasons, _callers(project, around))
    modules = {facts.module for facts in project.flow.facts}
    by_path: dict[str, list[str]] = defaultdict(list)
    for name in sorted(step, key=lambda each: places[each].line):
        by_path[places[name].path].append(name)
    for _, (first, *others) in sorted(by_path.items()):
        shown = ", ".join(_short_name(each, first, modules) for each in others[:_SHOWN])
        more = f" and {count(len(others) - _SHOWN, 'other')}" if len(others) > _SHOWN else ""
        found = _finding(first, places[first], step, reasons, modules)
        yield found._replace(message=found.message + f"; also {shown}{more}" * bool(others))


class _Around:
    """Lookup of the function that runs a place whenever it is called."""

    def __init__(self, places: Mapping[str, Finding], branched: set[str]) -> None:
        self._branched = branched
        self._lines: dict[str, dict[int, str]] = defaultdict(dict)
        for name, place in sorted(places.items(), key=lambda each: each[1].line):  # inner ones last
            self._lines[place.path].update(dict.fromkeys(range(place.line, place.end_line + 1), name))

    def of(self, place: str) -> str:
        path, _, line = place.rpartition(":")
        return "" if place in self._branched else self._lines.get(path, {}).get(int(line), "")


def _reasons(project: Project, places: Mapping[str, Finding], around: _Around) -> dict[str, Reason]:
    """Return the functions with findings of their own, by name."""
    reasons: dict[str, Reason] = {}
    for each in project.findings:
        name = around.of(f"{each.path}:{each.line}")
        is_ported = each.code.startswith(_PORTED) and each.code not in _RUNS
        if name and each.severity is Severity.MANUAL and is_ported:
            reasons.setdefault(name, Reason(each.subject, each.code, each.path, each.line))
    imported = libraries_to_replace(project.findings)
    called = {(each.callee, around.of(each.place)) for facts in project.flow.facts for each in facts.calls}
    for used, name in sorted(called):
        place, found = places.get(name), library(used)
        if place and found and (place.path, found[0]) in imported:
            reasons.setdefault(name, Reason(used, found[1].code, place.path, place.line))
    return reasons


def libraries_to_replace(findings: list[Finding]) -> set[tuple[str, str]]:
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
    shown = [_short_name(each, name, modules) for each in chain]
    if len(shown) > _SHOWN:
        shown[_SHOWN // 2 : -_SHOWN // 2] = ["..."]
    said = f"reaches {reason.subject} ({reason.code}, {reason.path}:{reason.line}): {' -> '.join(shown)}"
    return place._replace(
        code="IM412",
        end_line=place.line,
        subject=name,
        message=said,
        advice="it runs on the target once that is replaced; until then call it on CUDA only",
    )


def _short_name(name: str, beside: str, modules: set[str]) -> str:
    """Return a function's name for messages, without its module if ``beside`` is in the same one."""
    module = _module(name, modules)
    said = name.removeprefix(f"{module}.")
    return said if module == _module(beside, modules) else f"{module.rpartition('.')[2]}.{said}"


def _module(name: str, modules: set[str]) -> str:
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


DETECTOR = ProjectDetector(gather, judge)
