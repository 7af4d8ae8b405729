"""Convert the files of a project: Python sources, notebooks and shell scripts."""

import functools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from isthmus.migrate.convert import definitions, registry
from isthmus.migrate.convert.engine import Result, convert_source
from isthmus.migrate.convert.notebook import convert_notebook
from isthmus.migrate.convert.rule import ALONE, Change, Project
from isthmus.migrate.convert.shell import convert_shell
from isthmus.migrate.source import files as sources
from isthmus.migrate.source.files import File, Kind, Source
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.own_methods import own_cuda_of

_KINDS = (Kind.PYTHON, Kind.NOTEBOOK, Kind.SHELL)
_ALONE = 200  # number of files that one process converts before others have started


class Request(NamedTuple):
    """Options of a conversion.

    Attributes:
        target: a device type, or "" for any accelerator.
        select: codes, names or code prefixes of the rules to apply; all if empty.
        ignore: codes, names or code prefixes of rules to skip.
        options: options that enable rules.
    """

    target: str = ""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    options: Collection[str] = ()


class Converted(NamedTuple):
    """Result of converting a file.

    Attributes:
        path: its path.
        name: path relative to the converted folder, with ``/``.
        before: its bytes.
        after: its bytes after the changes.
        changes: the changes.
        findings: what was not converted, and why.
    """

    path: Path
    name: str
    before: bytes
    after: bytes
    changes: Sequence[Change]
    findings: Sequence[Finding]


def convert(root: Path, request: Request, processes: int = 0) -> Iterator[Converted]:
    """Convert the files of a project; yield those with a change or a finding. Nothing is written.

    Args:
        root: a folder or a file.
        request: options.
        processes: number of processes for a large tree; 0 for one per core.

    Raises:
        FileNotFoundError: root does not exist.
        RegistryError: a selected rule does not exist.
    """
    registry.select(request.select, request.ignore)
    found = list(sources.files(root))
    files = [each for each in found if isinstance(each, File) and each.kind in _KINDS]
    for finding in found:
        if isinstance(finding, Finding):
            yield Converted(root, finding.path, b"", b"", [], [finding])
    work = functools.partial(convert_file, request=request, project=around(files))
    yield from (each for each in _map(work, files, processes) if each.changes or each.findings)


def around(files: Sequence[File]) -> Project:
    """Collect facts that the sources of a project need about each other."""
    read = [source for source in map(sources.read, files) if isinstance(source, Source)]
    return Project(definitions.taken(source.text for source in read), own_cuda_of(read))


def convert_file(file: File, request: Request, project: Project = ALONE) -> Converted:
    """Convert one file of a project."""
    source = sources.read(file)
    if isinstance(source, Finding):
        return Converted(file.path, file.name, b"", b"", [], [source])
    result = _convert(source, request, project)
    after = result.text.encode(source.encoding) if result.changes else source.data
    return Converted(file.path, file.name, source.data, after, result.changes, result.findings)


def _convert(source: Source, request: Request, project: Project) -> Result:
    rules = registry.select(request.select, request.ignore)
    convert_python = functools.partial(
        convert_source, target=request.target, rules=rules, options=request.options, project=project
    )
    if source.kind is Kind.NOTEBOOK:
        return convert_notebook(source.text, source.name, convert_python)
    if source.kind is Kind.SHELL:
        return convert_shell(source)
    return convert_python(source.text, source.name)


def _map(work: Callable[[File], Converted], files: Sequence[File], processes: int) -> Iterator[Converted]:
    count = processes or len(os.sched_getaffinity(0))
    if count == 1 or len(files) < _ALONE:
        yield from map(work, files)
        return
    with ProcessPoolExecutor(count) as pool:
        yield from pool.map(work, files, chunksize=16)


def relative_name(converted: Converted, root: Path) -> bytes:
    """Return the file's path relative to the folder, as bytes of the file system."""
    path = converted.path.relative_to(root) if root.is_dir() else Path(converted.path.name)
    return os.fsencode(path.as_posix())
