"""Commands of NVIDIA's tools and launchers, as data for shell scripts and for commands run by Python."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.regions import region
from isthmus_migrate.source.strings import text

LAUNCH, RUN = "torch.distributed.launch", "torch.distributed.run"
# torchrun starts the script unbuffered, so -u is redundant.
_PLAIN = re.compile(r"\bpython3?(?:\s+-u)?\s+-m\s+torch\.distributed\.launch\b")
_USE_ENV = re.compile(r"[ \t]*(?<!\S)--use[_-]env(?!\S)")


class Pattern(NamedTuple):
    """A pattern of a command.

    Attributes:
        code: code of the findings.
        words: regular expression to search for.
        message: message of the findings.
        advice: what to do.
    """

    code: str
    words: re.Pattern[str]
    message: str
    advice: str


PROGRAMS = (
    Pattern(
        "IM321",
        re.compile(r"\b(?:nvidia-smi|nvidia-cuda-mps-control)\b"),
        "is NVIDIA's",
        "`isthmus doctor` shows devices, and `isthmus run` their memory",
    ),
    Pattern(
        "IM321",
        re.compile(r"\b(?:nsys|ncu|nvprof)\b(?!\.)"),
        "is NVIDIA's profiler",
        "torch.profiler measures any accelerator",
    ),
    Pattern(
        "IM321",
        re.compile(r"\b(?:nvcc|cuda-memcheck|compute-sanitizer)\b"),
        "belongs to the CUDA toolkit",
        "port the project's kernels to the target; see findings IM4xx",
    ),
    Pattern(
        "IM303",
        re.compile(r"\b(?:horovodrun|colossalai run|composer)\b(?=\s+\S)"),
        "starts ranks of a library written for CUDA",
        "use torchrun or `isthmus run --nproc`",
    ),
)
_RUNS = frozenset(
    {
        f"subprocess.{name}"
        for name in "run call check_call check_output Popen getoutput getstatusoutput".split()
    }
    | {
        "os.system",
        "os.popen",
        "shutil.which",
        "asyncio.create_subprocess_shell",
        "asyncio.create_subprocess_exec",
    }
)


class Commands(Rule):
    """NVIDIA's commands that a script runs."""

    code = "IM321"
    name = "nvidia-commands"
    summary = "reports NVIDIA's commands and launchers of libraries written for CUDA; changes nothing"
    before = 'subprocess.run(["nvidia-smi"])'
    after = 'subprocess.run(["nvidia-smi"])'
    words = ("subprocess", "os.system", "os.popen", "which", "popen", "asyncio")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find such commands, also in a variable."""
        for node in run_strings(module):
            for pattern in PROGRAMS:
                if match := pattern.words.search(text(node)):
                    said = (match[0], pattern.message, pattern.advice)
                    if found := region(module, node):
                        yield self.already_portable(
                            module, node, match[0], f"{pattern.message}, {found.why}", "stays"
                        )
                        continue
                    yield module.finding(pattern.code, Severity.REVIEW, node, *said)


def run_strings(module: Module) -> Iterator[ast.Constant]:
    """Yield the strings of commands that a script runs, each once."""
    seen: set[ast.AST] = set()
    for call in module.of(ast.Call):
        if module.names.qualified(call.func) in _RUNS and call.args:
            for node in _parts(module, call.args):
                if isinstance(node, ast.Constant) and text(node) and node not in seen:
                    seen.add(node)
                    yield node


def _parts(module: Module, command: list[ast.expr]) -> Iterator[ast.AST]:
    """Yield the nodes of a command; for a variable, those of its only assigned value."""
    for node in (inner for each in command for inner in ast.walk(each)):
        yield node
        values = [
            assignment.value
            for assignment in module.of(ast.Assign)
            if isinstance(node, ast.Name)
            and any(isinstance(target, ast.Name) and target.id == node.id for target in assignment.targets)
        ]
        if len(values) == 1:
            yield from ast.walk(values[0])


def to_torchrun(command: str) -> str:
    """Return the text of a command with torchrun in place of torch.distributed.launch.

    torchrun always uses the environment, and has no option ``--use_env``.
    """
    return _USE_ENV.sub("", _PLAIN.sub("torchrun", command).replace(LAUNCH, RUN))
