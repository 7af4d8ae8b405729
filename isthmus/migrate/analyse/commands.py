"""NVIDIA commands and launchers run by Python sources (IM220, IM303, IM321)."""

import ast
from collections.abc import Iterator

from isthmus.migrate.analyse.shell import LAUNCH, PROGRAMS
from isthmus.migrate.analyse.strings import text
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module

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


def detect(module: Module) -> Iterator[Finding]:
    """``subprocess.run(["nvidia-smi"])``, ``os.popen(f"nvidia-smi -i {index}")``, a command in a variable."""
    if not module.mentions("subprocess", "os.system", "os.popen", "which", "popen"):
        return
    for call in module.of(ast.Call):
        if module.names.qualified(call.func) in _RUNS and call.args:
            for node in _parts(module, call.args[0]):
                yield from _found(module, node)


def _parts(module: Module, command: ast.expr) -> Iterator[ast.AST]:
    """Return the nodes of a command; for a variable, those of its only assigned value."""
    for node in ast.walk(command):
        yield node
        values = [
            assignment.value
            for assignment in module.of(ast.Assign)
            if isinstance(node, ast.Name)
            and any(isinstance(target, ast.Name) and target.id == node.id for target in assignment.targets)
        ]
        if len(values) == 1:
            yield from ast.walk(values[0])


def _found(module: Module, node: ast.AST) -> Iterator[Finding]:
    words = text(node)
    for pattern in PROGRAMS:
        if words and (match := pattern.words.search(words)):
            assert isinstance(node, ast.Constant)
            yield module.finding(
                pattern.code, pattern.severity, node, match[0], pattern.message, pattern.advice
            )
    if LAUNCH.words.search(words):
        assert isinstance(node, ast.Constant)
        advice = "use torchrun, which sets LOCAL_RANK, or `isthmus run --nproc`"
        yield module.finding(
            LAUNCH.code, Severity.REVIEW, node, "torch.distributed.launch", LAUNCH.message, advice
        )
