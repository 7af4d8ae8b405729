"""Search a project with all rules and detectors, in several processes if it is large."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from isthmus_migrate.analyse import detectors
from isthmus_migrate.analyse.detector import Project
from isthmus_migrate.flow.study import Progress, Request, in_processes, passes, study
from isthmus_migrate.rules import registry
from isthmus_migrate.rules.examine import examine as apply_rules
from isthmus_migrate.rules.settings import examine_settings
from isthmus_migrate.source.files import File, Kind, Source, read, tree
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.parse import package_of, parse, too_deep
from isthmus_migrate.source.surroundings import ALONE, Surroundings
from isthmus_migrate.trace.evidence import Evidence


class Report(NamedTuple):
    """Result of an analysis.

    Attributes:
        findings: in the order of path and line.
        hidden: number of findings that need no change and were removed.
        files: number of files read.
        lines: number of their lines.
    """

    findings: list[Finding]
    files: int
    lines: int
    hidden: int = 0

    def without_not_applicable(self) -> Report:
        """Return the report without findings that need no change, which are counted."""
        shown = [each for each in self.findings if each.severity is not Severity.NONE]
        return self._replace(findings=shown, hidden=self.hidden + len(self.findings) - len(shown))


@dataclass
class _Part:
    """A worker's result for some files; ``facts`` has a list for each detector of the project."""

    findings: list[Finding] = field(default_factory=list)
    facts: list[list[Any]] = field(default_factory=lambda: [[] for _ in detectors.PROJECT])
    natives: list[Source] = field(default_factory=list)
    files: int = 0
    lines: int = 0


def analyse(
    *roots: Path,
    target: str = "",
    processes: int = 0,
    progress: Progress = lambda done, total: None,
    probe: bool = True,
    advice: bool = False,
    evidence: Evidence | None = None,
) -> Report:
    """Analyse every source under folders, or files, as one project.

    Args:
        roots: folders or files.
        target: device type to run on; "" for the available accelerator.
        processes: number of processes; 0 to choose one.
        progress: called with the number of files done and their total; Python files count twice.
        probe: also check operators, by querying PyTorch and the target.
        advice: also report what is optional, for speed or precision.
        evidence: the record of a run, which decides what the source does not show.

    Raises:
        FileNotFoundError: a root does not exist.
    """
    folder, present, problems = tree(roots)
    request = Request(target, package=package_of(folder), evidence=evidence)
    studied, searched = passes(progress, present)
    around, flow = study(present, request, processes, studied)
    work = functools.partial(_examine, package=request.package)
    items = [(file, around.get(file.name, ALONE)) for file in present]
    parts = list(in_processes(work, items, processes, searched))
    findings = [*problems, *(finding for part in parts for finding in part.findings)]
    natives = [source for part in parts for source in part.natives]
    findings += _project_findings(Project(target, [], natives, findings, flow), parts, probe)
    wanted = dict.fromkeys(each for each in findings if advice or each.severity is not Severity.ADVICE)
    ordered = sorted(wanted, key=lambda each: (each.path, each.line, each.column, each.code, each.subject))
    return Report(ordered, sum(part.files for part in parts), sum(part.lines for part in parts))


def examine(module: Module) -> list[Finding]:
    """Return the findings of a module."""
    findings = apply_rules(module, registry.all_rules())
    for detector in detectors.MODULE:
        findings += detector(module)
    return findings


def _examine(chunk: Iterable[tuple[File, Surroundings]], package: str) -> _Part:
    part = _Part()
    for file, around in chunk:
        source = read(file)
        if isinstance(source, Finding):
            part.findings.append(source)
        else:
            try:
                _analyse_source(source, package, around, part)
            except RecursionError:
                part.findings.append(too_deep(file.name))
    return part


def _analyse_source(source: Source, package: str, around: Surroundings, part: _Part) -> None:
    if source.kind is Kind.SETTINGS:
        part.findings += examine_settings(source, around.settings)
        return
    part.files += 1
    part.lines += source.text.count("\n") + (not source.text.endswith("\n") and bool(source.text))
    for detect in detectors.TEXT.get(source.kind, ()):
        part.findings += detect(source)
    if source.kind is Kind.NATIVE:
        part.natives.append(source)
    if source.kind in {Kind.PYTHON, Kind.NOTEBOOK}:
        module, problems = parse(source, package, around)
        part.findings += problems
        if module:
            part.findings += examine(module)
            gathered = [detector.gather(module) for detector in detectors.PROJECT]
            for facts, fact in zip(part.facts, gathered, strict=True):
                facts.append(fact)


def _project_findings(project: Project, parts: list[_Part], probe: bool) -> Iterator[Finding]:
    known = list(project.findings)
    for index, detector in enumerate(detectors.PROJECT):
        if detector.probes and not probe:
            continue
        facts = [fact for part in parts for fact in part.facts[index] if fact is not None]
        new = list(detector.judge(project._replace(facts=facts, findings=known)))
        known += new
        yield from new
