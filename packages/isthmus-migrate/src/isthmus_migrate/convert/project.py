"""Convert the files of a project: Python sources, notebooks and shell scripts."""

import functools
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from isthmus_migrate.analyse import detectors
from isthmus_migrate.convert.engine import Result, convert_module
from isthmus_migrate.convert.notebook import with_code
from isthmus_migrate.convert.shell import convert_shell
from isthmus_migrate.convert.style import NO_STYLE, Style, format_changes
from isthmus_migrate.flow import study
from isthmus_migrate.rules import registry
from isthmus_migrate.rules.requirements import examine_requirements
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.rules.settings import examine_settings
from isthmus_migrate.source import files as sources
from isthmus_migrate.source import versions
from isthmus_migrate.source.files import File, Kind, Source
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.parse import package_of, parse, too_deep
from isthmus_migrate.source.surroundings import ALONE, Surroundings
from isthmus_migrate.trace.evidence import Evidence

_KINDS = (Kind.PYTHON, Kind.NOTEBOOK, Kind.SHELL, Kind.REQUIREMENTS, Kind.SETTINGS)
_BYTE_ORDER_MARK = "\ufeff"


class Request(NamedTuple):
    """Options of a conversion.

    Attributes:
        target: a device type, or "" for any accelerator.
        select: codes, names or code prefixes of the rules to apply; all if empty.
        ignore: codes, names or code prefixes of rules to skip.
        options: options that enable rules.
        torch: oldest version of PyTorch that the result has to run on; () for any.
        evidence: the record of a run, which decides what the source does not show.
        style: how the project writes its source.
    """

    target: str = ""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    options: Collection[str] = ()
    torch: tuple[int, ...] = ()
    evidence: Evidence | None = None
    style: Style = NO_STYLE


class Converted(NamedTuple):
    """Result of converting a file.

    Attributes:
        path: its path.
        name: path relative to the converted folder, with ``/``.
        before: its bytes.
        after: its bytes after the changes.
        findings: what was found, with the end of each.
        torch: oldest version of PyTorch that has what the changed lines use; () for any.
    """

    path: Path
    name: str
    before: bytes
    after: bytes
    findings: Sequence[Finding]
    torch: tuple[int, ...] = ()

    @property
    def changes(self) -> list[Finding]:
        """The findings that were converted."""
        return [each for each in self.findings if each.edits]


def convert(
    roots: Path | Sequence[Path],
    request: Request,
    processes: int = 0,
    progress: study.Progress = lambda *_: None,
) -> Iterator[Converted]:
    """Convert the files of a project; yield those with a finding. Nothing is written.

    Args:
        roots: a folder or a file, or several.
        request: options.
        processes: number of processes for a large tree; 0 to choose one.
        progress: called with the number of files done and their total; Python files count twice.

    Raises:
        FileNotFoundError: a root does not exist.
        RegistryError: a selected rule does not exist.
    """
    registry.select(request.select, request.ignore)
    folder, files, problems = sources.tree([roots] if isinstance(roots, Path) else roots)
    for finding in problems:
        yield Converted(folder / finding.path, finding.path, b"", b"", [finding])
    present = [each for each in files if each.kind in _KINDS]
    options = frozenset(request.options)
    asked = study.Request(
        request.target, options, package_of(folder), request.evidence, request.torch, request.style.quote
    )
    studied, searched = study.passes(progress, present)
    around, _ = study.study(present, asked, processes, studied)
    work = functools.partial(_convert_chunk, request=request._replace(evidence=None), package=asked.package)
    items = [(file, around.get(file.name, ALONE)) for file in present]
    for part in study.in_processes(work, items, processes, searched):
        yield from (each for each in part if each.findings)


def _convert_chunk(
    items: Sequence[tuple[File, Surroundings]], request: Request, package: str
) -> list[Converted]:
    rules = registry.select(request.select, request.ignore)
    return [convert_file(file, rules, package, around, request.style) for file, around in items]


def convert_file(
    file: File,
    rules: Sequence[type[Rule]],
    package: str = "",
    around: Surroundings = ALONE,
    style: Style = NO_STYLE,
) -> Converted:
    """Convert one file of a project."""
    source = sources.read(file)
    if isinstance(source, Finding):
        return Converted(file.path, file.name, b"", b"", [source])
    try:
        result = _convert(source, rules, package, around)
    except RecursionError:
        result = Result(source.text, [too_deep(file.name)])
    if not result.changes:
        return Converted(file.path, file.name, source.data, source.data, result.findings)
    torch = versions.minimum(source.text, result.text)
    text = result.text
    if file.kind is Kind.PYTHON:
        text = format_changes(source.text, text, file.path, style)
    after = text.encode(source.encoding)
    return Converted(file.path, file.name, source.data, after, result.findings, torch)


def _convert(source: Source, rules: Sequence[type[Rule]], package: str, around: Surroundings) -> Result:
    if source.kind is Kind.SHELL:
        return convert_shell(source)
    if source.kind is Kind.REQUIREMENTS:
        return Result(source.text, list(examine_requirements(source)))
    if source.kind is Kind.SETTINGS:
        return Result(source.text, list(examine_settings(source, around.settings)))
    module, problems = parse(source, package, around)
    if module is None:
        return Result(source.text, problems)
    result = convert_module(module, rules)
    module.findings = list(result.findings)
    found = [each for detector in detectors.MODULE for each in detector(module)]
    others = [each for each in found if each.severity is not Severity.ADVICE]
    findings = sorted(
        [*problems, *result.findings, *others], key=lambda each: (each.line, each.column, each.code)
    )
    if source.kind is Kind.NOTEBOOK:
        return Result(with_code(source.text, result.text) if result.changes else source.text, findings)
    mark = _BYTE_ORDER_MARK if source.text.startswith(_BYTE_ORDER_MARK) else ""
    return Result(mark + result.text, findings)


def relative_name(converted: Converted, roots: Sequence[Path]) -> bytes:
    """Return the file's path relative to the folder of the roots, as bytes of the file system."""
    path = converted.path.resolve() if len(roots) > 1 else converted.path
    return os.fsencode(path.relative_to(sources.folder_of(roots)).as_posix())
