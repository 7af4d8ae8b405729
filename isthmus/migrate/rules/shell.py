"""Shell scripts: launchers, NVIDIA commands, variables of CUDA and NCCL."""

import re
from collections.abc import Iterator

from isthmus.migrate.rules.commands import LAUNCH, PROGRAMS, Pattern, launched
from isthmus.migrate.rules.variables import VARIABLES
from isthmus.migrate.source.edits import Edit
from isthmus.migrate.source.files import Source
from isthmus.migrate.source.findings import Finding, Severity

_LAUNCH = Pattern(
    "IM220", re.compile(re.escape(LAUNCH) + r"\b"), "is deprecated", "becomes torchrun, which sets LOCAL_RANK"
)
_USE_ENV = Pattern(
    "IM220",
    re.compile(r"--use[_-]env(?!\S)"),
    "is an option of the old launcher",
    "torchrun always uses the environment",
)
_REPORTED = (
    *PROGRAMS,
    Pattern(
        "IM312",
        re.compile(r"https?://\S+/whl/(?:nightly/)?cu\d+"),
        "has PyTorch's CUDA builds",
        "install PyTorch from the default index",
    ),
    *(Pattern(*each) for each in VARIABLES),
)
_EMPTY = re.compile(r"\s*\\\r?\n?")


def examine_shell(source: Source) -> Iterator[Finding]:
    """Yield the findings of a script line by line, without comments; launchers have edits."""
    start = 0
    within = False  # a launcher's command continued from the line before
    for number, line in enumerate(source.text.splitlines(keepends=True), 1):
        is_comment = line.lstrip().startswith("#")
        within = not is_comment and (within or LAUNCH in line)
        if within and (new := _launched(line)) != line:
            yield _changed(source, number, line, Edit(start, start + len(line), new))
        if not is_comment or line.lstrip().startswith("#SBATCH"):
            yield from _reported(source, number, line)
        within = within and line.rstrip("\r\n").endswith("\\")
        start += len(line)


def _launched(line: str) -> str:
    """Return a line of a launcher's command for torchrun; "" if nothing of it is left."""
    new = launched(line)
    return "" if new != line and _EMPTY.fullmatch(new) else new


def _changed(source: Source, number: int, line: str, edit: Edit) -> Finding:
    pattern = _LAUNCH if LAUNCH in line else _USE_ENV
    match = pattern.words.search(line)
    assert match is not None
    return _finding(source, number, pattern, match, Severity.AUTOMATIC)._replace(edits=(edit,))


def _reported(source: Source, number: int, line: str) -> Iterator[Finding]:
    for pattern in _REPORTED:
        for match in pattern.words.finditer(line):
            yield _finding(source, number, pattern, match, Severity.REVIEW)


def _finding(
    source: Source, number: int, pattern: Pattern, match: re.Match[str], severity: Severity
) -> Finding:
    place = (source.name, number, number)
    said = (match[0], pattern.message, pattern.advice)
    return Finding(pattern.code, severity, *place, *said, match.start() + 1)
