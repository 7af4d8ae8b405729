"""Shell scripts, Dockerfiles and commands in notebooks: launchers, NVIDIA commands, images, packages, variables."""

import re
from collections.abc import Iterator

from isthmus_migrate.rules.commands import LAUNCH, PROGRAMS, Pattern, to_torchrun
from isthmus_migrate.rules.variables import BUILD, VARIABLES
from isthmus_migrate.source.edits import Edit
from isthmus_migrate.source.files import Source
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.third_party import distribution

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
        "install the build of PyTorch for the target",
    ),
    Pattern(
        "IM311",
        re.compile(r"(?<![\w/.-])(?:nvcr\.io/nvidia/|nvidia/cuda\b|pytorch/pytorch:\S*cuda)[^\s'\"]*"),
        "is an image with CUDA",
        "start from an image for the target",
    ),
    Pattern(
        "IM321",
        re.compile(
            r"--gpus[= ](?:all\b|['\"]*device=\S+)|--runtime[= ]nvidia\b|\b(?:driver|runtime): *nvidia\b"
        ),
        "gives NVIDIA's GPUs to a container",
        "give it the target's devices: `--device`, or the target's container runtime",
    ),
    *(Pattern(*each) for each in VARIABLES),
)
_INSTALLED = re.compile(r"\bpip3? install\b([^|;&\n]*)")
_PACKAGE = re.compile(r"(?<![\w/:=.-])[A-Za-z][\w.-]*")
_EMPTY = re.compile(r"\s*\\\r?\n?")


def examine_shell(source: Source) -> Iterator[Finding]:
    """Yield the findings of a script line by line, without comments; launchers have edits."""
    start = 0
    within = False  # a launcher's command continued from the line before
    for number, line in enumerate(source.text.splitlines(keepends=True), 1):
        is_comment = line.lstrip().startswith("#")
        within = not is_comment and (within or LAUNCH in line)
        if within and (new := _to_torchrun(line)) != line:
            yield _change_finding(source, number, line, Edit(start, start + len(line), new))
        if not is_comment or line.lstrip().startswith("#SBATCH"):
            yield from (
                each._replace(path=source.name, line=number, end_line=number) for each in find_in_line(line)
            )
        within = within and line.rstrip("\r\n").endswith("\\")
        start += len(line)


def _to_torchrun(line: str) -> str:
    """Return a line of a launcher's command for torchrun; "" if nothing of it is left."""
    new = to_torchrun(line)
    return "" if new != line and _EMPTY.fullmatch(new) else new


def _change_finding(source: Source, number: int, line: str, edit: Edit) -> Finding:
    pattern = _LAUNCH if LAUNCH in line else _USE_ENV
    match = pattern.words.search(line)
    assert match is not None
    found = _finding(pattern, match, Severity.AUTOMATIC)
    return found._replace(path=source.name, line=number, end_line=number, edits=(edit,))


def find_in_line(line: str) -> Iterator[Finding]:
    """Yield what depends on CUDA in a line of a script, as findings without path and line."""
    for pattern in _REPORTED:
        if matches := list(pattern.words.finditer(line)):
            said = _finding(
                pattern, matches[0], Severity.NONE if pattern.message == BUILD else Severity.REVIEW
            )
            yield said._replace(subject=", ".join(dict.fromkeys(each[0] for each in matches)))
    for command in _INSTALLED.finditer(line):
        for package in _PACKAGE.finditer(command[1]):
            if found := distribution(package[0]):
                code, severity, advice = found[1]
                column = command.start(1) + package.start() + 1
                yield Finding(code, severity, "", 0, 0, package[0], "is installed", advice, column)


def _finding(pattern: Pattern, match: re.Match[str], severity: Severity) -> Finding:
    said = (match[0], pattern.message, pattern.advice)
    return Finding(pattern.code, severity, "", 0, 0, *said, match.start() + 1)
