"""Shell scripts: launchers, NVIDIA commands, variables of CUDA and NCCL."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from isthmus.migrate.analyse.variables import VARIABLES
from isthmus.migrate.source.files import Source
from isthmus.migrate.source.findings import Finding, Severity


class Pattern(NamedTuple):
    """A pattern of a command.

    Attributes:
        code: code of the findings.
        severity: who has to act.
        words: regular expression to search for.
        message: message of the findings.
        advice: what to do.
    """

    code: str
    severity: Severity
    words: re.Pattern[str]
    message: str
    advice: str


LAUNCH = Pattern(
    "IM220",
    Severity.AUTOMATIC,
    re.compile(r"-m\s+torch\.distributed\.launch\b"),
    "is deprecated",
    "becomes torchrun, which sets LOCAL_RANK; or `isthmus run --nproc`",
)
# Also searched in commands run by Python.
PROGRAMS = (
    Pattern(
        "IM321",
        Severity.REVIEW,
        re.compile(r"\b(?:nvidia-smi|nvidia-cuda-mps-control)\b"),
        "is NVIDIA's",
        "`isthmus doctor` shows devices, and `isthmus run` their memory",
    ),
    Pattern(
        "IM321",
        Severity.REVIEW,
        re.compile(r"\b(?:nsys|ncu|nvprof)\b(?!\.)"),
        "is NVIDIA's profiler",
        "torch.profiler measures any accelerator",
    ),
    Pattern(
        "IM321",
        Severity.REVIEW,
        re.compile(r"\b(?:nvcc|cuda-memcheck|compute-sanitizer)\b"),
        "belongs to the CUDA toolkit",
        "port the project's kernels to the target; see findings IM4xx",
    ),
    Pattern(
        "IM303",
        Severity.REVIEW,
        re.compile(r"\b(?:horovodrun|colossalai run|composer)\b(?=\s+\S)"),
        "starts ranks of a library written for CUDA",
        "use torchrun or `isthmus run --nproc`",
    ),
)
_PATTERNS = (
    LAUNCH,
    *PROGRAMS,
    Pattern(
        "IM312",
        Severity.REVIEW,
        re.compile(r"https?://\S+/whl/(?:nightly/)?cu\d+"),
        "has PyTorch's CUDA builds",
        "install PyTorch from the default index",
    ),
    *(Pattern(each.code, Severity.REVIEW, each.names, each.message, each.advice) for each in VARIABLES),
)


def detect(source: Source) -> Iterator[Finding]:
    """Check a script line by line, without comments; continued lines are separate."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if not line.lstrip().startswith("#") or line.lstrip().startswith("#SBATCH"):
            yield from _line(source, number, line)


def _line(source: Source, number: int, line: str) -> Iterator[Finding]:
    for pattern in _PATTERNS:
        for match in pattern.words.finditer(line):
            yield Finding(
                pattern.code,
                pattern.severity,
                source.name,
                number,
                number,
                match[0].split()[-1],
                pattern.message,
                pattern.advice,
                match.start() + 1,
            )
