"""Requirements of a project (IM31x): CUDA-only libraries, CUDA packages, PyTorch's CUDA builds."""

import ast
import re
from collections.abc import Iterator, Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.files import Source
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text
from isthmus_migrate.source.third_party import distribution

_PACKAGE = re.compile(r"[\"'\s\-]*(?P<name>[A-Za-z][A-Za-z0-9._-]*)")
_TORCH = re.compile(r"(?:torch|pytorch)\s*(?P<versions>[=~<>!][=~<>!\d.,*\s]*)")
# Versions with torch.accelerator.current_accelerator(check_available=True).
_LATER = ("2.7.0", "2.8.0", "2.9.0", "2.10.0", "2.13.0", "3.0.0")
_PART_OF_CUDA = re.compile(
    r"nvidia-[\w-]+-cu\d+|cudatoolkit\S*|cudnn|nccl|pytorch-cuda|cuda-toolkit|cuda-nvcc"
)
_CUDA_BUILD = re.compile(
    r"(?P<subject>torch\w*\s*[=~<>]=?\s*[\d.]+\+cu\d+|https?://\S+/whl/(?:nightly/)?cu\d+\S*)"
)


class Requirements(Rule):
    """Requirements in a ``setup.py``."""

    code = "IM311"
    name = "requirements"
    summary = "reports required packages that are part of CUDA or written for it; changes nothing"
    before = 'setup(install_requires=["nvidia-cublas-cu12"])'
    after = 'setup(install_requires=["nvidia-cublas-cu12"])'
    words = ("install_requires", "extras_require", "setup_requires")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find such packages in the arguments of ``setup()``."""
        if module.source.path.name != "setup.py":
            return
        for keyword in module.of(ast.keyword):
            if keyword.arg in self.words:
                for node in ast.walk(keyword.value):
                    yield from self._required(module, node)

    def _required(self, module: Module, node: ast.AST) -> Iterator[Finding]:
        match = _PACKAGE.match(text(node))
        if match is None:
            return
        if older := _older_torch(text(node)):
            yield module.finding("IM313", Severity.REVIEW, node, older, _LACKS, _REMEDY)
        elif _PART_OF_CUDA.fullmatch(match["name"]):
            yield self.undecided(module, node, match["name"], "is part of CUDA", "remove it")
        elif found := distribution(match["name"]):
            known = found[1]
            yield module.finding(known.code, known.severity, node, match["name"], "is required", known.advice)


def examine_requirements(source: Source) -> Iterator[Finding]:
    """Check requirements files, pyproject.toml, setup.cfg and conda environments line by line."""
    for number, line in enumerate(source.text.splitlines(), 1):
        required = line.split("#", 1)[0]
        if required.strip():
            yield from _line(source, number, required)


def _line(source: Source, number: int, line: str) -> Iterator[Finding]:
    if build := _CUDA_BUILD.search(line):
        said, advice = "is PyTorch's build for CUDA", "require PyTorch without the local version or index"
        yield _requirement_finding(source, number, "IM312", Severity.REVIEW, build["subject"], said, advice)
        return
    for quoted in re.findall(r"[\"']([^\"']+)[\"']", line) or [line]:
        match = _PACKAGE.match(quoted)
        name = match["name"] if match else ""
        if older := _older_torch(quoted):
            yield _requirement_finding(source, number, "IM313", Severity.REVIEW, older, _LACKS, _REMEDY)
        elif _PART_OF_CUDA.fullmatch(name):
            yield _requirement_finding(
                source, number, "IM311", Severity.REVIEW, name, "is part of CUDA", "remove it"
            )
        elif found := distribution(name):
            _, known = found
            said = "is required"
            yield _requirement_finding(source, number, known.code, known.severity, name, said, known.advice)


_LACKS = "excludes PyTorch 2.7 and later, which converted sources need"
_REMEDY = (
    "require the version that `isthmus migrate convert` prints at its end, or give the older one by --torch"
)


def settle_findings(found: Sequence[Finding], needed: str) -> list[Finding]:
    """Return findings, with those of an older PyTorch judged by the version that a conversion needs; "" for any."""
    remedy = f"require PyTorch {needed} or later, or give the older one by --torch"
    lacks = f"excludes PyTorch {needed}, which the converted sources need"
    return [
        each._replace(message=lacks, advice=remedy) if each.code == "IM313" else each
        for each in found
        if each.code != "IM313" or (needed and _older_torch(each.subject, (needed, *_LATER)))
    ]


def _older_torch(line: str, later: Sequence[str] = _LATER) -> str:
    """Return the requirement of a PyTorch older than all of some versions in a line; "" if there is none."""
    found = _TORCH.fullmatch(line.strip().lstrip("- "))
    if found is None:
        return ""
    conda = re.fullmatch(r"=\s*(\d[\d.]*)", found["versions"].strip())
    try:
        versions = SpecifierSet(f"=={conda[1]}.*" if conda else found["versions"])
    except InvalidSpecifier:
        return ""
    return "" if any(map(versions.contains, later)) else found[0].strip()


def _requirement_finding(
    source: Source, line: int, code: str, severity: Severity, subject: str, message: str, advice: str
) -> Finding:
    return Finding(code, severity, source.name, line, line, subject, message, advice)
