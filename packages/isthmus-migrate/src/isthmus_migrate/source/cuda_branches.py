"""Effects of a test for CUDA: where its value gets to, and what runs only where it is true."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from isthmus_migrate.source import cuda_names, cuda_only
from isthmus_migrate.source.assignments import assigned_values, bindings, find_reads
from isthmus_migrate.source.blocks import leaves, statements_after
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS
from isthmus_migrate.source.questions import is_portable, is_question

_MOVES = re.compile(r"\.cuda\(|\.to\(|device\s*=")
SKIPS = frozenset({"skipIf", "skipUnless", "skipif"})  # decorators that skip a test on a condition


class Decision(NamedTuple):
    """The decision of a test.

    Attributes:
        node: what its value gets to, past ``not``, ``and``, ``any`` or a skip: a branch, an assignment or another.
        part: the part of the node that holds the test.
        holds: whether the part is true only on CUDA; False if it is false only there, None if neither.
        beside: the other operands, which are evaluated, or matter, only on CUDA.
    """

    node: ast.AST
    part: ast.AST
    holds: bool | None
    beside: list[ast.expr]


def decision(module: Module, test: ast.expr) -> Decision:
    """Return what a test for CUDA decides; one with ``!=`` or ``not in`` is the opposite of one."""
    holds: bool | None = not (
        isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.NotIn)
    )
    beside: list[ast.expr] = []
    below: ast.AST = test
    node = module.parents[test]
    while isinstance(node, ast.expr) and _passes(node):
        if isinstance(node, ast.BoolOp):
            holds = holds if isinstance(node.op, ast.And) is holds else None
            beside += [each for each in node.values if each is not below and holds is not None]
        elif _is_negation(node):
            holds = None if holds is None else not holds
        node, below = module.parents[node], node
    return Decision(node, below, holds, beside)


def _passes(node: ast.expr) -> bool:
    """Whether an expression is true, or false, by the test that it has."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in SKIPS or getattr(node.func, "id", "") in ("all", "any")
    if isinstance(node, ast.Compare):
        return isinstance(getattr(node.comparators[0], "value", None), int)
    return isinstance(node, ast.BoolOp | ast.GeneratorExp | ast.ListComp) or _is_negation(node)


def _is_negation(node: ast.expr) -> bool:
    if isinstance(node, ast.Compare):  # torch.cuda.is_available() is False, torch.cuda.device_count() < 1
        is_limit = isinstance(node.ops[0], ast.Gt | ast.GtE)
        is_equal = isinstance(node.ops[0], ast.Is | ast.Eq)
        return not is_limit and is_equal is not bool(getattr(node.comparators[0], "value", True))
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("skipIf", "skipif")
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def is_asserted(module: Module, test: ast.expr) -> bool:
    """Whether an assertion, ``assert`` or ``assertTrue``, requires that a test is true."""
    node, part, holds, _ = decision(module, test)
    is_assertion = isinstance(node, ast.Assert) and part is node.test
    return holds is not False and (
        is_assertion or getattr(getattr(node, "func", None), "attr", "") == "assertTrue"
    )


def rejects(module: Module, test: ast.expr) -> bool:
    """Whether the ``if`` of a test raises an error, or leaves its block without a result: ``if x < 8: return``."""
    branch, part, *_ = decision(module, test)
    if not isinstance(branch, ast.If) or part is not branch.test:
        return False
    last = [each[-1] for each in (branch.body, branch.orelse) if each]
    return any(
        leaves(each) and isinstance(getattr(each, "value", None), ast.Constant | None) for each in last
    )


def stays(module: Module, test: ast.expr) -> bool:
    """Whether a test for CUDA stays one, for what it stands in front of."""
    return asks_cuda(module, test) or keeps_cuda(module, test)


def asks_cuda(module: Module, test: ast.expr) -> bool:
    """Whether a test stands in front of questions that only CUDA answers, such as its compute capability.

    That is an operand of the same ``and``, or the branch if nothing else in it is CUDA's.
    """
    parts = list(guarded_nodes(module, test))
    asked = [each for each in parts if any(is_question(module, inner) for inner in ast.walk(each))]
    if any(isinstance(each, ast.expr) for each in asked):
        return True
    return bool(asked) and not any(is_portable(module, inner) for each in parts for inner in ast.walk(each))


def keeps_cuda(module: Module, test: ast.expr) -> bool:
    """Whether a test for CUDA stands in front of code that stays for CUDA, so that it must stay a test for CUDA."""
    return any(_uses_cuda_only(module, each) for each in guarded_nodes(module, test))


def places_on_device(module: Module, part: ast.AST) -> bool:
    """Whether a part of a source moves something to a device, or creates it there."""
    return _MOVES.search(module.code(part)) is not None


def arms(module: Module, test: ast.expr) -> list[ast.expr]:
    """Return the tests of the ``elif`` arms after the ``if`` of a test."""
    found: list[ast.expr] = []
    branch: ast.AST | None = decision(module, test).node
    while isinstance(branch, ast.If | ast.IfExp) and (branch := _only_if(branch.orelse)):
        found.append(branch.test)
    return found


def _only_if(part: ast.expr | list[ast.stmt]) -> ast.If | ast.IfExp | None:
    only = part[0] if isinstance(part, list) and len(part) == 1 else part
    return only if isinstance(only, ast.If | ast.IfExp) else None


def guarded_nodes(
    module: Module, test: ast.expr, followed: frozenset[ast.AST] = frozenset()
) -> Iterator[ast.AST]:
    """Yield what runs only on CUDA: the rest of a test's condition, and the branch.

    Args:
        module: the module.
        test: the test.
        followed: what led to it, which is not followed again.
    """
    node, part, holds, beside = decision(module, test)
    yield from beside
    if holds is None or node in followed:
        return
    followed |= {node}
    if isinstance(node, ast.If | ast.IfExp | ast.While) and part is node.test:
        yield from _branch(module, node, holds, followed)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef) and part in node.decorator_list:
        yield from node.body if holds else ()  # @unittest.skipUnless(torch.cuda.is_available(), "...")
    elif isinstance(node, ast.Return) and holds:
        yield from _guarded_by_callers(module, node, followed)
    elif isinstance(node, ast.Assign) and holds and bindings(module, node.targets[0]) == [node]:
        for read in find_reads(module, node.targets[0]):
            yield from guarded_nodes(module, read, followed)


def _branch(
    module: Module, test: ast.If | ast.IfExp | ast.While, holds: bool, followed: frozenset[ast.AST]
) -> Iterator[ast.AST]:
    """Yield what runs only where a statement's or expression's test is true, or where it is false."""
    part = test.body if holds else test.orelse
    yield from part if isinstance(part, list) else [part]
    if isinstance(test, ast.If) and not holds and not test.orelse and leaves(test.body[-1]):
        yield from statements_after(module, test)
        if any(map(_is_refusal, ast.walk(test))):
            yield from _refused_on(module, test)
            yield from _guarded_by_callers(module, test, followed)


def _refused_on(module: Module, statement: ast.If) -> Iterator[ast.expr]:
    """Yield the other conditions on which the block of an ``if ...: return False`` answers so."""
    block = getattr(module.parents[statement], "body", [])
    for each in block if statement in block else ():
        if isinstance(each, ast.If) and each is not statement and _is_refusal(each.body[-1]):
            yield each.test


def _is_refusal(node: ast.AST) -> bool:
    """Whether a node is ``return False``."""
    return isinstance(node, ast.Return) and getattr(node.value, "value", True) is False


def _guarded_by_callers(module: Module, inside: ast.AST, followed: frozenset[ast.AST]) -> Iterator[ast.AST]:
    """Yield what runs only where the function around a test, which is true if the test is, was asked."""
    function = module.nearest(inside, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, ast.FunctionDef):
        return
    name = module.names.defined(function)
    for call in module.of(ast.Call):
        if module.names.qualified(call.func) == name and function not in module.enclosing(call):
            yield from guarded_nodes(module, call, followed)
    for read in module.of(ast.Name):
        if isinstance(read.ctx, ast.Load) and module.names.qualified(read) == name:
            yield from _passed_beside(module, read)


def _passed_beside(module: Module, name: ast.Name) -> Iterator[ast.AST]:
    """Yield what a call is given beside a function: ``register(checker=is_supported, implementation=kernel)``."""
    above = module.parents[name]
    call = module.parents[above] if isinstance(above, ast.keyword) else above
    if isinstance(call, ast.Call) and call.func is not name:
        for each in (*call.args, *(keyword.value for keyword in call.keywords)):
            if each is not name:
                yield each
                yield from assigned_values(module, each) if isinstance(each, ast.Name) else ()
                yield from _held_by(module, each)


def _held_by(module: Module, implementation: ast.expr) -> Iterator[ast.expr]:
    """Yield the values of the variables that a function, or lambda, of the module uses."""
    name = module.names.qualified(implementation)
    functions = (each for each in module.of(ast.FunctionDef) if name == module.names.defined(each))
    body = implementation if isinstance(implementation, ast.Lambda) else next(functions, None)
    for node in ast.walk(body) if body is not None else ():
        yield from assigned_values(module, node) if isinstance(node, ast.Name) else ()


def _uses_cuda_only(module: Module, node: ast.AST) -> bool:
    return any(is_cuda_only(module, each) for each in ast.walk(node))


def is_cuda_only(module: Module, node: ast.AST) -> bool:
    """Whether a node names something of CUDA's runtime, a package for NVIDIA's GPUs, or code that uses one."""
    if isinstance(node, ast.Constant):
        return node.value in cuda_only.CUDA_BUILDS
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return False
    if isinstance(node, ast.Attribute) and node.attr in cuda_names.HANDLES:
        return True
    name = module.names.qualified(node) or ""
    if name.endswith("ProfilerActivity.CUDA"):
        return isinstance(module.parents[node], ast.Call)  # activities.append(...); in a list it is converted
    around = module.around
    return (
        cuda_only.is_for_cuda_only(name)
        or name in around.project.cuda_only
        or cuda_only.is_below(name, around.project.built)
    )
