"""Regions of a module that are for CUDA only: the function or block around what only CUDA has.

Their streams, waits, device strings and tests belong to what they surround, so that they stay with it. A region is
the innermost function, branch or handler that runs a CUDA graph, a kernel or an engine; what is around it is not.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from isthmus_migrate.source.blocks import runs_with
from isthmus_migrate.source.cuda_branches import (
    asks_cuda,
    decision,
    guarded_nodes,
    keeps_cuda,
    places_on_device,
)
from isthmus_migrate.source.cuda_only import is_below, is_graph, makes_cuda_only
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS
from isthmus_migrate.source.registrations import is_for_cuda
from isthmus_migrate.source.strings import names_cuda

_DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
_FOR_CUDA = re.compile(r"cuda|tensorrt|trt|triton", re.IGNORECASE)  # in the name of a class
_FAKE = re.compile(r"(\w+_)?fake_(tensor_)?mode")
_PATCH = re.compile(r"(monkeypatch|mocker|mock)\.(setattr|patch(\.object)?)|patch(\.object)?")
_LAUNCH = {"grid", "block"}  # arguments of a kernel of CuPy, PyCUDA or NVRTC


@dataclass(frozen=True)
class Region:
    """A region.

    Attributes:
        head: the function, class or first statement of it.
        why: what it is, for messages.
        is_listed: whether a person has to port it; not what a test for CUDA guards, nor what uses no device.
    """

    head: ast.AST
    why: str
    is_listed: bool = True


def region(module: Module, node: ast.AST) -> Region | None:
    """Return the region that contains a node, the outermost."""
    found = regions(module)
    inside = [found[each] for each in (node, *module.enclosing(node)) if each in found] if found else []
    return inside[-1] if inside else None


@functools.lru_cache(maxsize=1)
def regions(module: Module) -> Mapping[ast.AST, Region]:
    """Return the regions of a module by their nodes: functions, classes, statements and expressions."""
    found: dict[ast.AST, Region] = {}
    for node, name in _uses(module):
        block = runs_with(module, node)
        if not block and is_graph(name):
            block = [each for each in module.tree.body if not isinstance(each, _DEFINITIONS)]
        _add(found, block, f"in code for CUDA only ({name}, line {node.lineno})")  # type: ignore[attr-defined]
    _in_all_arms(module, found)
    _operators(module, found)
    _classes(module, found)
    _behind_tests(module, found)
    _called_by(module, found)
    _fakes(module, found)
    _add_patched_tests(module, found)
    return found


def _add(found: dict[ast.AST, Region], block: list[ast.AST], why: str, is_listed: bool = True) -> None:
    for each in block:
        found.setdefault(each, Region(block[0], why, is_listed))


def _in_all_arms(module: Module, found: dict[ast.AST, Region]) -> None:
    """Add what surrounds an ``if`` whose arms are all regions, innermost first."""
    for branch in reversed(module.of(ast.If)):
        arms = [
            next((found[each] for each in arm if each in found), None) for arm in (branch.body, branch.orelse)
        ]
        if arms[0] is not None and arms[1] is not None:
            _add(found, runs_with(module, branch), arms[0].why)


# ---- evidence -----------------------------------------------------------------------------------------------
def _uses(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield the places that use what only CUDA has, with its name."""
    for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
        if isinstance(module.parents[node], ast.Attribute) or not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
            continue
        name = module.names.qualified(node) or ""
        if (makes_cuda_only(name) or is_below(name, module.around.project.built)) and not _is_annotation(
            module, node
        ):
            yield node, name
    imports: list[ast.Import | ast.ImportFrom] = [*module.of(ast.Import), *module.of(ast.ImportFrom)]
    for imported in imports:
        first = getattr(imported, "module", None) or imported.names[0].name
        if makes_cuda_only(first) and module.nearest(imported, *FUNCTIONS):
            yield imported, first
    for call in module.of(ast.Call):
        if kernel := launched_kernel(module, call):
            yield call, kernel


def launched_kernel(module: Module, call: ast.Call) -> str:
    """Return the name of the kernel that a call launches: ``kernel[grid](x)``, ``kernel(x, grid=..., block=...)``."""
    if isinstance(call.func, ast.Subscript):
        name = module.names.qualified(call.func.value) or ""
        return name.removeprefix(f"{module.name}.") if name in module.around.project.cuda_only else ""
    return ast.unparse(call.func) if {each.arg for each in call.keywords} >= _LAUNCH else ""


def _is_annotation(module: Module, node: ast.AST) -> bool:
    below = node
    for above in module.enclosing(node):
        if below in (getattr(above, "annotation", None), getattr(above, "returns", None)):
            return True
        if isinstance(above, ast.stmt):
            break
        below = above
    return False


def _operators(module: Module, found: dict[ast.AST, Region]) -> None:
    """Add the implementations of operators for CUDA, and their fake ones."""
    decorated = [
        (each, function) for function in module.of(ast.FunctionDef) for each in function.decorator_list
    ]
    operators = {
        module.names.defined(function)
        for each, function in decorated
        if isinstance(each, ast.Call) and is_for_cuda(module, each)
    }
    for each, function in decorated:
        of_fake = isinstance(each, ast.Attribute) and each.attr == "register_fake"
        name = module.names.qualified(each.value) if of_fake else module.names.defined(function)  # type: ignore[attr-defined]
        if name in operators:
            _add(found, [function], f"in an operator for CUDA (line {function.lineno})", False)


def _classes(module: Module, found: dict[ast.AST, Region]) -> None:
    """Add classes whose constructor is for CUDA only, or whose name says it and a part of a method is."""
    for owner in module.of(ast.ClassDef):
        inside = [each for each in found if owner in module.enclosing(each)]
        made = next((each for each in inside if getattr(each, "name", "") == "__init__"), None)
        named = inside[0] if inside and _FOR_CUDA.search(owner.name) else None
        if (part := made or named) is not None and owner not in found:
            found[owner] = Region(owner, found[part].why)


def _behind_tests(module: Module, found: dict[ast.AST, Region]) -> None:
    """Add what runs behind tests for CUDA that stay, if it always runs code for CUDA only."""
    for test in _tests(module):
        inside = list(guarded_nodes(module, test))
        uses = [each for part in inside for each in ast.walk(part) if _is_for_cuda(module, each, found)]
        blocks = {id(each) for use in uses for each in (use, *runs_with(module, use))}
        node, decorator, *_ = decision(module, test)
        decorates = decorator in getattr(node, "decorator_list", ())
        operands = [each for each in inside if isinstance(module.parents[each], ast.BoolOp)]
        asked = any(use in ast.walk(each) for use in uses for each in operands)
        is_whole = decorates or asked or not any(places_on_device(module, each) for each in inside)
        for part in inside:
            above = [id(each) for each in (part, *module.enclosing(part))]
            if uses and (is_whole or not blocks.isdisjoint(above)):
                why = f"behind a test for CUDA that stays (line {test.lineno})"
                found[part] = Region(part, why, is_listed=False)


def _tests(module: Module) -> Iterator[ast.expr]:
    """Yield the tests for CUDA that stay."""
    if not module.around.project.cuda_only and not module.mentions("torch.cuda."):
        return
    for call in module.of(ast.Call):
        if module.names.qualified(call.func) == "torch.cuda.is_available" and (
            asks_cuda(module, call) or keeps_cuda(module, call)
        ):
            yield call
    for compared in module.of(ast.Compare):
        if any(map(names_cuda, (compared.left, *compared.comparators))) and keeps_cuda(module, compared):
            yield compared
    for attribute in module.of(ast.Attribute):
        if attribute.attr == "is_cuda" and keeps_cuda(module, attribute):
            yield attribute


def _is_for_cuda(module: Module, node: ast.AST, found: Mapping[ast.AST, Region]) -> bool:
    if node in found:
        return True
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return False
    name = module.names.qualified(node) or ""
    return (
        makes_cuda_only(name)
        or name in module.around.project.cuda_code
        or is_below(name, module.around.project.built)
    )


def _called_by(module: Module, found: dict[ast.AST, Region]) -> None:
    """Add functions of the module that only regions use."""
    waiting = [
        each for each in module.tree.body if isinstance(each, FUNCTIONS) and not module.is_shared(each.name)
    ]
    reads: dict[str, list[ast.Name]] = {}
    for name in module.of(ast.Name):
        reads.setdefault(name.id, []).append(name)
    changed = bool(found)
    while changed:
        changed = False
        for function in [each for each in waiting if each not in found]:
            others = [each for each in reads.get(function.name, ()) if function not in module.enclosing(each)]
            around = [
                next((found[up] for up in module.enclosing(each) if up in found), None) for each in others
            ]
            if around and all(around):
                assert around[0] is not None
                found[function] = Region(function, around[0].why, is_listed=False)
                changed = True


def _fakes(module: Module, found: dict[ast.AST, Region]) -> None:
    """Add the bodies of ``with FakeTensorMode():``, whose tensors name a device and use none."""
    if not module.mentions("FakeTensorMode"):
        return
    for block in module.of(ast.With):
        modes = (each.context_expr for each in block.items)
        names = [ast.unparse(each.func if isinstance(each, ast.Call) else each) for each in modes]
        last = [each.rpartition(".")[2] for each in names]
        if any(each == "FakeTensorMode" or _FAKE.fullmatch(each) for each in last):
            _add(
                found, [*block.body], f"in FakeTensorMode, which uses no device (line {block.lineno})", False
            )


def _add_patched_tests(module: Module, found: dict[ast.AST, Region]) -> None:
    """Add tests that replace what a device is: ``monkeypatch.setattr("config.device_type", "cuda")``."""
    for call in module.of(ast.Call):
        function = ast.unparse(call.func) if isinstance(call.func, ast.Attribute | ast.Name) else ""
        if _PATCH.fullmatch(function) and any(names_cuda(each) for each in call.args):
            why = f"in a test that sets what it asks for (line {call.lineno})"
            _add(found, runs_with(module, call), why, is_listed=False)
