"""Shell scripts: the launcher, NVIDIA's commands, variables that CUDA and NCCL read."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from isthmus.migrate.analyse.variables import VARIABLES
from isthmus.migrate.source.files import Source
from isthmus.migrate.source.findings import Finding, Severity


class Pattern(NamedTuple):
    """Words of a command.

    Attributes:
        code: of their findings.
        severity: who has to act.
        words: that are looked for.
        message: what is said of them.
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
# Also looked for where Python runs commands.
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
        "is of the CUDA toolkit",
        "kernels of the project's own have to be written for the target; see the findings IM4xx",
    ),
    Pattern(
        "IM303",
        Severity.REVIEW,
        re.compile(r"\b(?:horovodrun|colossalai run|composer)\b(?=\s+\S)"),
        "starts ranks for a library that knows CUDA first",
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
        "has PyTorch's builds for CUDA",
        "install PyTorch from the default index",
    ),
    *(Pattern(each.code, Severity.REVIEW, each.names, each.message, each.advice) for each in VARIABLES),
)


def detect(source: Source) -> Iterator[Finding]:
    """Line by line, without comments; a line that ends in a backslash counts for itself."""
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
