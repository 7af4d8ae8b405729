"""PyTorch's profiler: CUDA as an activity, and columns with its name (IM124)."""

import ast
import re
from collections.abc import Iterator

from isthmus.migrate.analyse.strings import text
from isthmus.migrate.analyse.syntax import keyword
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module

_COLUMN = re.compile(r"(self_)?cuda_(time_total|time|memory_usage)")
_ACTIVITY = "torch.profiler.ProfilerActivity."


def detect(module: Module) -> Iterator[Finding]:
    """``ProfilerActivity.CUDA``, ``sort_by="cuda_time_total"``, ``event.cuda_time``, ``use_cuda=True``."""
    if not module.mentions("ProfilerActivity.CUDA", "cuda_time", "cuda_memory_usage", "use_cuda"):
        return
    for node in module.of(ast.Attribute):
        if module.names.qualified(node) == f"{_ACTIVITY}CUDA":
            yield _activity(module, node)
        elif _COLUMN.fullmatch(node.attr):
            yield _found(module, node, node.attr)
    for constant in module.of(ast.Constant):
        if _COLUMN.fullmatch(text(constant)):
            yield _found(module, constant, text(constant))
    for call in module.of(ast.Call):
        if module.names.qualified(call.func) == "torch.autograd.profiler.profile" and keyword(
            call, "use_cuda"
        ):
            yield _found(module, call, "use_cuda")


def _activity(module: Module, node: ast.Attribute) -> Finding:
    """Find the CUDA activity: converted in a list with the CPU's, manual elsewhere."""
    parent = module.parents[node]
    listed = parent.elts if isinstance(parent, ast.List) else []
    names = {module.names.qualified(each) for each in listed}
    severity = Severity.AUTOMATIC if names == {f"{_ACTIVITY}CPU", f"{_ACTIVITY}CUDA"} else Severity.REVIEW
    advice = "becomes torch.profiler.supported_activities()"
    return module.finding("IM124", severity, node, "ProfilerActivity.CUDA", "is an activity of CUDA", advice)


def _found(module: Module, node: ast.AST, name: str) -> Finding:
    advice = f"becomes {name.replace('cuda', 'device')}"
    return module.finding("IM124", Severity.AUTOMATIC, node, name, "is of CUDA", advice)
