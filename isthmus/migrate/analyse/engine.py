"""Run the detectors on a project, in several processes if it is large."""

import functools
import gc
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.migrate.analyse import detectors
from isthmus.migrate.source.files import File, Kind, Source, files, read
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Module, Project
from isthmus.migrate.source.own_methods import own_cuda_of
from isthmus.migrate.source.parse import package_of, parse

_LARGE = 8 << 20  # bytes of source; for less, starting processes costs more than it saves
_CHUNK = 32  # files


class Report(NamedTuple):
    """Result of an analysis.

    Attributes:
        findings: in the order of path and line.
        files: number of files read.
        lines: number of their lines.
    """

    findings: list[Finding]
    files: int
    lines: int


@dataclass
class _Part:
    """A worker's result for some files; ``facts`` has a list for each detector of the project."""

    findings: list[Finding] = field(default_factory=list)
    facts: list[list[Any]] = field(default_factory=lambda: [[] for _ in detectors.PROJECT])
    natives: list[Source] = field(default_factory=list)
    files: int = 0
    lines: int = 0


def analyse(
    root: Path,
    target: str = "",
    *,
    processes: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    probe: bool = True,
) -> Report:
    """Analyse every source under a folder, or one file.

    Args:
        root: folder or file.
        target: device type to run on; "" for the available accelerator.
        processes: number of processes; 0 to choose one.
        progress: called with the number of files done and their total.
        probe: also check operators, by querying PyTorch and the target.

    Raises:
        FileNotFoundError: root does not exist.
    """
    found = list(files(root))
    findings = [each for each in found if isinstance(each, Finding)]
    present = [each for each in found if isinstance(each, File)]
    chunks = [present[start : start + _CHUNK] for start in range(0, len(present), _CHUNK)]
    parts: list[_Part] = []
    done = 0
    own_cuda = own_cuda_of(source for source in map(read, present) if isinstance(source, Source))
    examine_chunk = functools.partial(_examine, package=package_of(root), own_cuda=own_cuda)
    for chunk, part in zip(chunks, _examined(chunks, examine_chunk, processes), strict=True):
        parts.append(part)
        done += len(chunk)
        progress(done, len(present))
    findings += [finding for part in parts for finding in part.findings]
    findings += _of_project(root, target, parts, findings, probe)
    findings = sorted(
        set(findings), key=lambda each: (each.path, each.line, each.column, each.code, each.subject)
    )
    return Report(findings, sum(part.files for part in parts), sum(part.lines for part in parts))


def examine(module: Module) -> Iterator[Finding]:
    """Yield the findings of a module."""
    for detector in detectors.MODULE:
        yield from detector(module)


def _examined(
    chunks: list[list[File]], examine_chunk: Callable[[list[File]], _Part], processes: int
) -> Iterator[_Part]:
    if processes == 0:
        size = sum(file.path.stat().st_size for chunk in chunks for file in chunk if file.path.exists())
        processes = len(os.sched_getaffinity(0)) if size > _LARGE else 1
    if processes == 1:
        yield from map(examine_chunk, chunks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy PyTorch's threads
    with ProcessPoolExecutor(processes, context, initializer=gc.disable) as pool:  # trees have no cycles
        yield from pool.map(examine_chunk, chunks)


def _examine(chunk: Iterable[File], package: str, own_cuda: str) -> _Part:
    part = _Part()
    for file in chunk:
        source = read(file)
        if isinstance(source, Finding):
            part.findings.append(source)
        else:
            _look(source, package, own_cuda, part)
    return part


def _look(source: Source, package: str, own_cuda: str, part: _Part) -> None:
    part.files += 1
    part.lines += source.text.count("\n") + (not source.text.endswith("\n") and bool(source.text))
    for detect in detectors.TEXT.get(source.kind, ()):
        part.findings += detect(source)
    if source.kind is Kind.NATIVE:
        part.natives.append(source)
    if source.kind in {Kind.PYTHON, Kind.NOTEBOOK}:
        module, problems = parse(source, package, own_cuda)
        part.findings += problems
        if module:
            part.findings += examine(module)
            for facts, detector in zip(part.facts, detectors.PROJECT, strict=True):
                facts.append(detector.gather(module))


def _of_project(
    root: Path, target: str, parts: list[_Part], findings: list[Finding], probe: bool
) -> Iterator[Finding]:
    known = list(findings)
    natives = [source for part in parts for source in part.natives]
    for index, detector in enumerate(detectors.PROJECT):
        if detector.probes and not probe:
            continue
        facts = [fact for part in parts for fact in part.facts[index] if fact is not None]
        new = list(detector.judge(Project(root, target, facts, natives, known)))
        known += new
        yield from new
