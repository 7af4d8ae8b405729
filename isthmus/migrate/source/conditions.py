"""Conditions under which a place of a module runs, and which of them are about CUDA."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from isthmus.migrate.source import cuda_names, cuda_only
from isthmus.migrate.source.assigned import assigned
from isthmus.migrate.source.blocks import earlier, following
from isthmus.migrate.source.calls import last_name
from isthmus.migrate.source.constants import is_own_type
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.names import FUNCTIONS
from isthmus.migrate.source.questions import is_portable, is_question, names_type

AVAILABLE = frozenset({"torch.cuda.is_available", "torch.accelerator.is_available"})
_FUNCTIONS = (*FUNCTIONS, ast.Lambda)
_MOVES = re.compile(r"\.cuda\(|\.to\(|device\s*=")
SKIPS = frozenset({"skipIf", "skipUnless", "skipif"})  # decorators that skip a test on a condition
_ALIASES = 4  # limit of variables followed


class Condition(NamedTuple):
    """A condition of a place.

    Attributes:
        test: the tested expression.
        holds: whether it is true there; False if it is false there.
    """

    test: ast.expr
    holds: bool


def conditions(module: Module, node: ast.AST) -> Iterator[Condition]:
    """Yield the conditions under which a node runs, innermost first.

    Those around the function of the node are yielded if they cannot change until it is called.
    """
    below, is_own = node, True
    for above in module.enclosing(node):
        found = _at(above, below)
        yield from found if is_own else (each for each in found if _is_fixed(module, each))
        is_own = is_own and not isinstance(above, _FUNCTIONS)
        below = above


def _at(above: ast.AST, below: ast.AST) -> Iterator[Condition]:
    """Yield the conditions that a node makes for its child."""
    if isinstance(above, ast.If | ast.IfExp | ast.While) and below is not above.test:
        body = above.body if isinstance(above.body, list) else [above.body]
        yield from _split(Condition(above.test, below in body))
    elif isinstance(above, ast.BoolOp):
        for each in above.values[: above.values.index(below) if below in above.values else 0]:
            yield from _split(Condition(each, isinstance(above.op, ast.And)))
    elif isinstance(above, ast.ListComp | ast.SetComp | ast.GeneratorExp) and below is above.elt:
        for each in above.generators[-1].ifs:
            yield from _split(Condition(each, True))
    yield from _left_before(above, below)


def _is_fixed(module: Module, condition: Condition) -> bool:
    """Whether a condition is the same for as long as a program runs."""
    test = condition.test
    if isinstance(test, ast.Call):
        return module.names.qualified(test.func) in AVAILABLE
    return isinstance(test, ast.Compare) and is_own_type(test.left)


def _left_before(above: ast.AST, below: ast.AST) -> Iterator[Condition]:
    """Yield conditions of earlier statements of a block that otherwise leave it: ``if not x: return``."""
    for each in earlier(above, below):
        if isinstance(each, ast.If) and not each.orelse and leaves(each.body[-1]):
            yield from _split(Condition(each.test, False))
        elif isinstance(each, ast.Assert):
            yield from _split(Condition(each.test, True))


def leaves(statement: ast.stmt) -> bool:
    """Whether a statement leaves its block: the function, the loop or the program."""
    if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
        return True
    return (
        isinstance(statement, ast.Expr)
        and re.match(r"(sys\.|os\._?)?exit\(", ast.unparse(statement)) is not None
    )


def _split(condition: Condition) -> Iterator[Condition]:
    """Yield the parts of a condition that hold on their own."""
    test, holds = condition
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _split(Condition(test.operand, not holds))
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
        for each in test.values:
            yield from _split(Condition(each, holds))
    else:
        yield condition


def implies_accelerator(module: Module, condition: Condition, aliases: int = _ALIASES) -> bool:
    """Whether a condition of the source, or what it is converted to, implies an accelerator.

    A variable implies one if the module shows it: if each of its assignments does.

    Args:
        module: the module.
        condition: the condition.
        aliases: number of variables that are followed.
    """
    test, holds = condition
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compares_type(module, test, holds)
    if isinstance(test, ast.Call):
        return holds and module.names.qualified(test.func) in AVAILABLE
    values = assigned(module, test) if aliases and isinstance(test, ast.Name | ast.Attribute) else []
    return bool(values) and all(value_implies(module, each, holds, aliases - 1) for each in values)


def value_implies(module: Module, value: ast.expr, holds: bool = True, aliases: int = _ALIASES) -> bool:
    """Whether a value, at its place, is true (or false) only with an accelerator."""
    if isinstance(value, ast.Constant) and bool(value.value) is not holds:
        return True
    known = [*_split(Condition(value, holds)), *conditions(module, value)]
    return any(implies_accelerator(module, each, aliases) for each in known)


def implies_cuda(module: Module, condition: Condition) -> bool:
    """Whether a condition implies CUDA after the conversion too.

    That is a comparison with the device constant's type, a test for CUDA that stays one, or a lower limit of the
    compute capability, which is 0 elsewhere.
    """
    test, holds = condition
    if isinstance(test, ast.Call) and module.names.qualified(test.func) == "torch.cuda.is_available":
        return holds and stays(module, test)
    if isinstance(test, ast.Attribute) and test.attr == "is_cuda":
        return holds and stays(module, test)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    if holds and isinstance(test.ops[0], ast.Gt | ast.GtE) and is_question(module, test.left):
        return True
    equal = isinstance(test.ops[0], ast.Eq if holds else ast.NotEq)
    ours = ast.unparse(test.left) == f"{module.device}.type" and not module.has_own_choice
    return equal and names_type(test.comparators[0], "cuda") and (ours or stays(module, test))


def _compares_type(module: Module, test: ast.Compare, holds: bool) -> bool:
    operator, right = test.ops[0], test.comparators[0]
    if isinstance(operator, ast.In | ast.NotIn):  # DEVICE.type not in ("cpu", "mps")
        is_outside = isinstance(operator, ast.NotIn) == holds and isinstance(right, ast.Tuple)
        return is_outside and any(map(_is_cpu, ast.walk(right)))
    equal = isinstance(operator, ast.Eq) == holds
    if not isinstance(operator, ast.Eq | ast.NotEq):
        return False
    sides = (test.left, right)
    if any(names_type(side, "cuda") or names_type(side, "nccl") for side in sides):
        return equal
    return any(map(_is_cpu, sides)) and not equal


def _is_cpu(node: ast.AST) -> bool:
    return isinstance(node, ast.expr) and names_type(node, "cpu")


def stays(module: Module, test: ast.expr) -> bool:
    """Whether a test for CUDA stays one, for what it stands in front of."""
    return asks_cuda(module, test) or keeps_cuda(module, test)


def asks_cuda(module: Module, test: ast.expr) -> bool:
    """Whether a test stands in front of questions that only CUDA answers, such as its compute capability.

    That is an operand of the same ``and``, or the branch if nothing else in it is CUDA's.
    """
    parts = list(guarded(module, test))
    asked = [each for each in parts if any(is_question(module, inner) for inner in ast.walk(each))]
    if any(isinstance(each, ast.expr) for each in asked):
        return True
    return bool(asked) and not any(is_portable(module, inner) for each in parts for inner in ast.walk(each))


def keeps_cuda(module: Module, test: ast.expr) -> bool:
    """Whether a test for CUDA stands in front of code that stays for CUDA, so that it must stay a test for CUDA."""
    return any(_uses_cuda_only(module, each) for each in guarded(module, test))


def moves(module: Module, part: ast.AST) -> bool:
    """Whether a part of a source moves something to a device, or creates it there."""
    return _MOVES.search(module.code(part)) is not None


def arms(module: Module, test: ast.expr) -> list[ast.expr]:
    """Return the tests of the ``elif`` arms after the ``if`` of a test."""
    found: list[ast.expr] = []
    for above in module.enclosing(test):
        if isinstance(above, ast.If | ast.IfExp):
            following = above.orelse
            while arm := _only_if(following):
                found.append(arm.test)
                following = arm.orelse
            break
        if isinstance(above, ast.stmt):
            break
    return found


def _only_if(part: ast.expr | list[ast.stmt]) -> ast.If | ast.IfExp | None:
    only = part[0] if isinstance(part, list) and len(part) == 1 else part
    return only if isinstance(only, ast.If | ast.IfExp) else None


def guarded(module: Module, test: ast.expr) -> Iterator[ast.AST]:
    """Yield what runs only on CUDA: the rest of a test's condition, and the branch."""
    holds = not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.NotIn))
    below = test
    for above in module.enclosing(test):
        if isinstance(above, ast.UnaryOp) and isinstance(above.op, ast.Not):
            holds = not holds
        elif isinstance(above, ast.BoolOp):
            if isinstance(above.op, ast.And) == holds:
                yield from (each for each in above.values if each is not below)
            else:
                return
        elif isinstance(above, ast.If | ast.IfExp | ast.While) and below is above.test:
            yield from _branch(module, above, holds)
            return
        elif isinstance(above, ast.FunctionDef | ast.ClassDef) and below in above.decorator_list:
            yield from above.body if holds else ()  # @unittest.skipUnless(torch.cuda.is_available(), "...")
            return
        elif isinstance(above, ast.Return) and holds:
            yield from _asked(module, above)
            return
        elif isinstance(above, ast.Call) and last_name(above.func) in SKIPS:
            holds = holds == (last_name(above.func) == "skipUnless")
        elif isinstance(above, ast.Assign) and holds:
            yield from (each for read in _reads(module, above) for each in guarded(module, read))
            return
        elif not isinstance(above, ast.Compare):
            return
        elif (
            isinstance(above.ops[0], ast.Is | ast.Eq)
            and getattr(above.comparators[0], "value", None) is False
        ):
            holds = not holds  # torch.cuda.is_available() is False
        below = above


def _branch(module: Module, test: ast.If | ast.IfExp | ast.While, holds: bool) -> Iterator[ast.AST]:
    """Yield what runs only where a statement's or expression's test is true, or where it is false."""
    part = test.body if holds else test.orelse
    yield from part if isinstance(part, list) else [part]
    if isinstance(test, ast.If) and not holds and not test.orelse and leaves(test.body[-1]):
        yield from following(module, test)
        if any(map(_is_refusal, ast.walk(test))):
            yield from _refused_on(module, test)
            yield from _asked(module, test)


def _refused_on(module: Module, statement: ast.If) -> Iterator[ast.expr]:
    """Yield the other conditions on which the block of an ``if ...: return False`` answers so."""
    block = getattr(module.parents[statement], "body", [])
    for each in block if statement in block else ():
        if isinstance(each, ast.If) and each is not statement and _is_refusal(each.body[-1]):
            yield each.test


def _is_refusal(node: ast.AST) -> bool:
    """Whether a node is ``return False``."""
    return isinstance(node, ast.Return) and getattr(node.value, "value", True) is False


def _reads(module: Module, assign: ast.Assign) -> list[ast.Name]:
    """Return the reads of a variable of a function that only this statement assigns."""
    target = assign.targets[0]
    scope = module.names.scope(target)
    if not isinstance(target, ast.Name) or scope == module.name:
        return []
    same = [
        each for each in module.of(ast.Name) if each.id == target.id and module.names.scope(each) == scope
    ]
    reads = [each for each in same if isinstance(each.ctx, ast.Load)]
    return reads if len(reads) == len(same) - 1 else []


def _asked(module: Module, inside: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs only where the function around a test, which is true if the test is, was asked."""
    function = next((each for each in module.enclosing(inside) if isinstance(each, _FUNCTIONS)), None)
    if not isinstance(function, ast.FunctionDef):
        return
    name = module.names.defined(function)
    for call in module.of(ast.Call):
        if module.names.qualified(call.func) == name and not any(
            each is function for each in module.enclosing(call)
        ):
            yield from guarded(module, call)
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
                yield from assigned(module, each) if isinstance(each, ast.Name) else ()
                yield from _held_by(module, each)


def _held_by(module: Module, implementation: ast.expr) -> Iterator[ast.expr]:
    """Yield the values of the variables that a function, or lambda, of the module uses."""
    name = module.names.qualified(implementation)
    functions = (each for each in module.of(ast.FunctionDef) if name == module.names.defined(each))
    body = implementation if isinstance(implementation, ast.Lambda) else next(functions, None)
    for node in ast.walk(body) if body is not None else ():
        yield from assigned(module, node) if isinstance(node, ast.Name) else ()


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
