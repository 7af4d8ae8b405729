"""Extensions that are built from a project's C++ and CUDA sources (IM411)."""

import ast
from collections.abc import Iterator

from isthmus_migrate.source.calls import argument
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_EXTENSION = "torch.utils.cpp_extension."
BUILDS = frozenset(_EXTENSION + name for name in ("load", "load_inline", "CUDAExtension", "CppExtension"))
_CUDA = (".cu", ".cuh")
_FOR_CUDA = frozenset({"cuda_sources", "extra_cuda_cflags"})
_TODO = "build it for CUDA only, and implement each of its operators for the target"


def detect(module: Module) -> Iterator[Finding]:
    """Yield the calls that build an extension, and those that pass CUDA sources to a function that does."""
    if not module.mentions("cpp_extension", '.cu"', ".cu'", *_FOR_CUDA):
        return
    for call in module.of(ast.Call):
        name = module.names.qualified(call.func) or ""
        if name in BUILDS:
            yield _build(module, call, name)
        elif sources := _describe_cuda_sources(call):
            said = f"is passed {sources}, to build for CUDA"
            yield module.finding("IM411", Severity.MANUAL, call, name or "a function", said, _TODO)


def builds_cuda(call: ast.Call, name: str) -> bool:
    """Whether one of :data:`BUILDS` compiles CUDA sources."""
    if name.endswith(".CUDAExtension") or any(each.arg == "cuda_sources" for each in call.keywords):
        return True
    return any(text(each).endswith(_CUDA) for each in ast.walk(call))


def _build(module: Module, call: ast.Call, name: str) -> Finding:
    if builds_cuda(call, name):
        return module.finding("IM411", Severity.MANUAL, call, name, "builds CUDA sources", _TODO)
    if name.endswith(".load") and not isinstance(argument(call, ("name", "sources"), "sources"), ast.List):
        instead = "build CUDA sources for CUDA only, and C++ sources for the target too"
        return module.finding(
            "IM411", Severity.REVIEW, call, name, "builds sources that it is given", instead
        )
    instead = "build it for the target too; it works there if it uses ATen's operators and no data pointers"
    return module.finding("IM411", Severity.REVIEW, call, name, "builds C++ sources", instead)


def _describe_cuda_sources(call: ast.Call) -> str:
    """Return the CUDA sources that a call passes in a list of sources, in words; "" if there are none."""
    options = {each.arg for each in call.keywords if each.arg}
    given = [*call.args, *(each.value for each in call.keywords)]
    listed = [each for value in given if isinstance(value, ast.List | ast.Tuple) for each in value.elts]
    names = [text(each) for each in listed if text(each).endswith(_CUDA)]
    return ", ".join(names) or ("CUDA sources" if options & _FOR_CUDA else "")
