"""Kernels in Python code: Triton, CuPy, Numba, torch.library."""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator

from isthmus_migrate.analyse.stand_ins import advise_port
from isthmus_migrate.source import registrations
from isthmus_migrate.source.cuda_branches import guarded_nodes, keeps_cuda
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module

_TRITON = frozenset(("triton.jit", "triton.runtime.jit.jit", "triton.experimental.gluon.jit"))
_RUNS = "`isthmus run` interprets it on the host chip, and runs it natively where Triton has a backend for the target"
_CUDA_JIT = frozenset(("numba.cuda.jit", "cupyx.jit.rawkernel", "cutlass.cute.kernel", "cutlass.cute.jit"))
_RAW = {
    **dict.fromkeys(
        ("cupy.RawKernel", "cupy.RawModule", "cupy.ElementwiseKernel", "cupy.ReductionKernel", "cupy.fuse"),
        "CuPy",
    ),
    "pycuda.compiler.SourceModule": "PyCUDA",
}


def detect(module: Module) -> Iterator[Finding]:
    """Kernels in Python (IM408, IM409), and operators for CUDA (IM410)."""
    found = list(kernels(module))
    helpers = _helpers(module, [function for function, _ in found])
    for function, code in found:
        if function in helpers:
            continue
        severity, instead = todo(code, function.name)
        if code == "IM408" and _is_tested(module, function):
            instead = f"tests for CUDA in front of its launch stay, and have to admit the target; {instead}"
        said = "is a Triton kernel" if code == "IM408" else "is a CUDA kernel in Python"
        yield module.finding(code, severity, _name_location(function), function.name, said, instead)
    if module.mentions("cupy", "pycuda", "library", "_custom_op"):
        for call in module.of(ast.Call):
            yield from _find_launch(module, call)


def kernels(module: Module) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Yield the module's functions compiled to kernels by Triton (IM408) or for CUDA (IM409), with the code."""
    if not module.mentions("triton", "numba", "cutlass", "cupyx"):
        return
    for function in module.of(ast.FunctionDef):
        names = {_decorator(module, each) for each in function.decorator_list}
        if names & _TRITON:
            yield function, "IM408"
        elif names & _CUDA_JIT:
            yield function, "IM409"


def _helpers(module: Module, functions: Collection[ast.FunctionDef]) -> set[ast.FunctionDef]:
    """Return the functions that only other ones of them call: a kernel that is launched contains them."""
    uses: dict[str, list[ast.Name]] = defaultdict(list)
    for name in module.of(ast.Name):
        if isinstance(name.ctx, ast.Load):
            uses[name.id].append(name)
    return {
        each
        for each in functions
        if uses[each.name] and all(_is_call_within(module, use, functions) for use in uses[each.name])
    }


def _is_call_within(module: Module, use: ast.Name, functions: Collection[ast.FunctionDef]) -> bool:
    call = module.parents[use]
    is_call = isinstance(call, ast.Call) and call.func is use
    return is_call and any(each in functions for each in module.enclosing(use))


def _is_tested(module: Module, function: ast.FunctionDef) -> bool:
    """Whether a test for CUDA stays one in front of a kernel's launch, or of a function that launches it."""
    if not module.mentions("is_cuda", "cuda.is_available"):
        return False
    uses = [each for each in module.of(ast.Name) if each.id == function.name]
    around = [above for use in uses for above in module.enclosing(use) if isinstance(above, ast.FunctionDef)]
    names = {function.name, *(each.name for each in around)}
    tests = [each.func for each in module.of(ast.Call) if isinstance(each.func, ast.Attribute)]
    tests = [each for each in tests if module.names.qualified(each) == "torch.cuda.is_available"]
    tests += [each for each in module.of(ast.Attribute) if each.attr == "is_cuda"]
    staying = (each for each in tests if keeps_cuda(module, each))
    return any(_names(part) & names for each in staying for part in guarded_nodes(module, each))


def _names(part: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(part) if isinstance(each, ast.Name)}


def todo(code: str, name: str) -> tuple[Severity, str]:
    """Return the severity of a kernel of :func:`kernels`, and the advice."""
    if code == "IM408":
        other = advise_port(name, "with PyTorch's operators")
        return Severity.REVIEW, f"{_RUNS}; else {other}"
    return Severity.MANUAL, advise_port(name)


def _find_launch(module: Module, call: ast.Call) -> Iterator[Finding]:
    name = module.names.qualified(call.func) or ""
    if name in _RAW:
        said = f"compiles a CUDA kernel with {_RAW[name]}"
        yield module.finding(
            "IM409", Severity.MANUAL, call, name, said, advise_port(_kernel_name(module, call))
        )
    elif registrations.is_for_cuda(module, call):
        yield _registration_finding(module, call, name)


def _registration_finding(module: Module, call: ast.Call, name: str) -> Finding:
    """An operator or an implementation whose device type or dispatch key is CUDA's."""
    severity = (
        Severity.MANUAL if name == "torch.library.custom_op" else Severity.REVIEW
    )  # another may be for all
    operator = registrations.operator(call)
    instead = f"register it for the target's device type too, or for all: {advise_port(operator)}"
    said = "is implemented here for CUDA only"
    return module.finding("IM410", severity, call, operator, said, instead)


def _decorator(module: Module, node: ast.expr) -> str | None:
    return module.names.qualified(node.func if isinstance(node, ast.Call) else node)


def _kernel_name(module: Module, call: ast.Call) -> str:
    """Return the kernel's name: the assigned variable, or the first string argument."""
    parent = module.parents.get(call)
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        return parent.targets[0].id
    return next((str(each.value) for each in call.args if isinstance(each, ast.Constant)), "")[:80]


def _name_location(function: ast.FunctionDef) -> ast.Name:
    """Return the location of a function's name."""
    line = function.lineno
    return ast.Name(function.name, lineno=line, end_lineno=line, col_offset=function.col_offset)
