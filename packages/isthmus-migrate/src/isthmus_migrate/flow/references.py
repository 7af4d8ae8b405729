"""References of each function of a module: the names that it uses, how it uses them, and what it always calls."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from isthmus_migrate.flow import sinks
from isthmus_migrate.flow.facts import Reference
from isthmus_migrate.flow.mock_effects import steered_use
from isthmus_migrate.flow.optional import is_optional
from isthmus_migrate.source.blocks import runs_with
from isthmus_migrate.source.calls import argument
from isthmus_migrate.source.conditions import is_on_accelerator
from isthmus_migrate.source.cuda_names import HANDLES
from isthmus_migrate.source.cuda_only import CUDA_SOURCE, asks_cuda, is_of_kernels
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS
from isthmus_migrate.source.strings import text
from isthmus_migrate.source.verdicts import Steers

if TYPE_CHECKING:
    from isthmus_migrate.flow.expressions import Expressions


def refer(gatherer: Expressions) -> None:
    """Record the dotted names that each function uses, what it calls in any case, and the extensions built."""
    module, facts = gatherer.module, gatherer.facts
    facts.is_script = module.source.path.name.startswith("test_")
    for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
        if isinstance(module.parents[node], ast.Attribute) or not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
            continue
        is_handle = isinstance(node, ast.Attribute) and node.attr in HANDLES
        if name := CUDA_SOURCE if is_handle else module.names.qualified(node):
            _reference(gatherer, node, name)
        elif getattr(node, "id", "") == "__name__" and isinstance(module.parents[node], ast.Compare):
            facts.is_script = True
    for constant in module.of(ast.Constant):
        said = text(constant)
        if said.endswith((".cu", ".cuh")) or said.startswith(("aten::cudnn_", "nvidia-smi")):
            _reference(gatherer, constant, CUDA_SOURCE)
    for given in module.of(ast.keyword):
        if given.arg in ("extra_cuda_cflags", "cuda_sources"):
            _reference(gatherer, given.value, CUDA_SOURCE)
    _run(gatherer)


def _reference(gatherer: Expressions, node: ast.expr, name: str) -> None:
    module, around = gatherer.module, _enclosing_function(gatherer.module, node)
    names = gatherer.facts.references.setdefault(around, {})
    known = names.get(name, Reference())
    end = steered_use(module, node, name) if name.startswith("torch.cuda.") else None
    names[name] = Reference(
        known.is_sheltered and _is_sheltered(module, node, name),
        known.is_required or (around != "" and not asks_cuda(name) and not is_optional(module, node)),
        end if known.steers in (None, end) else Steers.BOTH,
    )


def _is_sheltered(module: Module, node: ast.AST, name: str) -> bool:
    """Whether a node runs only where there is an accelerator, as its module shows."""
    is_own = not sinks.is_torch(name) and module.mentions("is_available", "cuda", "gpu")
    return is_own and is_on_accelerator(module, node)


def _run(gatherer: Expressions) -> None:
    """Record what each function calls in any case: the extensions that ``CUDAExtension("name", ...)`` builds too."""
    module, facts = gatherer.module, gatherer.facts
    functions = module.of(ast.FunctionDef)
    decorators = {
        each for function in functions for part in function.decorator_list for each in ast.walk(part)
    }
    for call in module.of(ast.Call):
        if module.names.qualified(call.func) == "torch.utils.cpp_extension.CUDAExtension":
            name = text(argument(call, ("name",), "name"))
            facts.built |= {name} if name else set()
        if call in decorators:
            continue
        function = call.func.value if isinstance(call.func, ast.Subscript) else call.func
        owner = gatherer.class_of_self(function.value) if isinstance(function, ast.Attribute) else ""
        called = f"{owner}.{function.attr}" if owner else module.names.qualified(function)  # type: ignore[attr-defined]
        block = runs_with(module, call)
        around = _enclosing_function(module, call) if block else ""
        always = not block or (block[0] in functions and module.names.defined(block[0]) == around)
        if called and always and not is_of_kernels(called):
            facts.runs.setdefault(around, set()).add(called)
    for kernel in functions:
        given = (each.func if isinstance(each, ast.Call) else each for each in kernel.decorator_list)
        names = filter(None, map(module.names.qualified, given))
        facts.runs.setdefault(module.names.defined(kernel), set()).update(names)


def _enclosing_function(module: Module, node: ast.AST) -> str:
    """Return the outermost function around a node, or method of a top-level class; "" for none."""
    found = [above for above in module.enclosing(node) if isinstance(above, FUNCTIONS)]
    return module.names.defined(found[-1]) if found else ""
