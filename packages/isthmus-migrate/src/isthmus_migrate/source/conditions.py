"""Conditions under which a place of a module runs, and which of them are about CUDA."""

import ast
import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from isthmus_migrate.source.assignments import assigned_values
from isthmus_migrate.source.blocks import leaves, place
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.constants import is_own_type
from isthmus_migrate.source.cuda_branches import SKIPS, stays
from isthmus_migrate.source.indices import is_integer
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS, Function
from isthmus_migrate.source.questions import is_question, names_type

AVAILABLE = frozenset({"torch.cuda.is_available", "torch.accelerator.is_available"})
_FUNCTIONS = (*FUNCTIONS, ast.Lambda)
_COUNTS = frozenset({"torch.cuda.device_count", "torch.accelerator.device_count"})
_DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
_EXITS = (ast.If, ast.Assert, ast.With, ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)
_GROUP = "torch.distributed.init_process_group"
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

    Those around the function of the node are yielded if they cannot change until it is called. Calls before it that
    fail without an accelerator are conditions too, also in the ``__init__`` of its class.
    """
    below, is_own = node, True
    for above in module.enclosing(node):
        found = _conditions_for_child(module, above, below)
        yield from found if is_own else (each for each in found if _is_fixed(module, each))
        if isinstance(above, _FUNCTIONS):
            yield from _init_demands(module, above) if is_own else ()
            is_own = False
        below = above


def _conditions_for_child(module: Module, above: ast.AST, below: ast.AST) -> Iterator[Condition]:
    """Yield the conditions that a node makes for its child."""
    if isinstance(above, ast.If | ast.IfExp | ast.While) and below is not above.test:
        body = above.body if isinstance(above.body, list) else [above.body]
        yield from _split_condition(Condition(above.test, below in body))
    elif isinstance(above, ast.BoolOp):
        for each in above.values[: above.values.index(below) if below in above.values else 0]:
            yield from _split_condition(Condition(each, isinstance(above.op, ast.And)))
    elif isinstance(above, ast.ListComp | ast.SetComp | ast.GeneratorExp) and below is above.elt:
        for each in above.generators[-1].ifs:
            yield from _split_condition(Condition(each, True))
    elif isinstance(above, _DEFINITIONS) and below in above.body:
        for each in above.decorator_list:
            if isinstance(each, ast.Call) and last_name(each.func) in SKIPS and each.args:
                yield from _split_condition(Condition(each.args[0], last_name(each.func) == "skipUnless"))
    yield from _left_before(module, below)


def _init_demands(module: Module, method: Function | ast.Lambda) -> Iterator[Condition]:
    """Yield the demands of the ``__init__`` of a method's class."""
    owner = module.parents[method]
    if not isinstance(owner, ast.ClassDef) or isinstance(method, ast.Lambda):
        return
    if method.decorator_list or method.name in ("__init__", "__new__"):
        return
    made = (each for each in owner.body if getattr(each, "name", "") == "__init__")
    for statement in (each for function in made for each in getattr(function, "body", ())):
        yield from (Condition(call, True) for call in _demanding_calls(module, statement))


def _is_fixed(module: Module, condition: Condition) -> bool:
    """Whether a condition is the same for as long as a program runs."""
    test = condition.test
    if isinstance(test, ast.Compare):
        return is_own_type(test.left) or _is_count(module, test.left)
    return isinstance(test, ast.Call) and module.names.qualified(test.func) in AVAILABLE


def _left_before(module: Module, statement: ast.AST) -> Iterator[Condition]:
    """Yield what holds since earlier statements of a block otherwise leave it, ``if not x: return``, or fail.

    That a later one fails holds too, if none in between leaves the block.
    """
    block, index = place(module, statement)
    for at, condition in _exits(module).get(block[0], ()) if block else ():
        if at < index or (
            at > index and isinstance(condition.test, ast.Call) and _demands(module, condition.test)
        ):
            yield condition
        elif at > index:
            return


@functools.lru_cache(maxsize=1)
def _exits(module: Module) -> Mapping[ast.stmt, list[tuple[int, Condition]]]:
    """Return what holds after statements that otherwise leave their block or fail, with their indices there.

    Blocks are given by their first statements.
    """
    found: dict[ast.stmt, list[tuple[int, Condition]]] = {}
    statements: list[ast.stmt] = [each for kind in _EXITS for each in module.of(kind)]
    for each in sorted(statements, key=lambda each: (each.lineno, each.col_offset)):
        if after := list(_conditions_after(module, each)):
            block, index = place(module, each)
            found.setdefault(block[0], []).extend((index, condition) for condition in after)
    return found


def _conditions_after(module: Module, statement: ast.stmt) -> Iterator[Condition]:
    if isinstance(statement, ast.If):
        if not statement.orelse and leaves(statement.body[-1]):
            yield from _split_condition(Condition(statement.test, False))
    elif isinstance(statement, ast.Assert):
        yield from _split_condition(Condition(statement.test, True))
    else:
        yield from (Condition(call, True) for call in _demanding_calls(module, statement))


def _demanding_calls(module: Module, statement: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls of a statement that fail without an accelerator, before and after the conversion."""
    if not module.mentions(".to(", "device_id="):
        return
    if isinstance(statement, ast.With):
        for each in statement.body:
            yield from _demanding_calls(module, each)
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return) and statement.value:
        yield from (each for each in _unconditional_calls(statement.value) if _demands(module, each))


def _demands(module: Module, call: ast.Call) -> bool:
    """Whether a call is ``x.to(rank)``, or ``init_process_group(device_id=torch.device(...))``, not for the CPU."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "to":
        return bool(call.args) and is_integer(module, call.args[0])
    if module.names.qualified(call.func) != _GROUP:
        return False
    given = [each.value for each in call.keywords if each.arg == "device_id"]
    if given and isinstance(given[0], ast.Name | ast.Attribute):
        given = assigned_values(module, given[0])
    made = (module.names.qualified(each.func) if isinstance(each, ast.Call) else "" for each in given)
    return bool(given) and all(each == "torch.device" for each in made)


def _unconditional_calls(node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of a chain, ``model.eval().to(rank)``, and those that are its arguments."""
    if isinstance(node, ast.Call):
        yield node
        for argument in node.args:
            yield from _unconditional_calls(argument)
        if isinstance(node.func, ast.Attribute):
            yield from _unconditional_calls(node.func.value)


def _split_condition(condition: Condition) -> Iterator[Condition]:
    """Yield the parts of a condition that hold on their own."""
    test, holds = condition
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _split_condition(Condition(test.operand, not holds))
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
        for each in test.values:
            yield from _split_condition(Condition(each, holds))
    else:
        yield condition


def is_on_accelerator(module: Module, node: ast.AST) -> bool:
    """Whether a node runs only where there is an accelerator, before and after the conversion."""
    return any(
        implies_cuda(module, each) or implies_accelerator(module, each) for each in conditions(module, node)
    )


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
        return holds and (
            module.names.qualified(test.func) in AVAILABLE
            or _starts_with_cuda(test)
            or _demands(module, test)
        )
    values = assigned_values(module, test) if aliases and isinstance(test, ast.Name | ast.Attribute) else []
    return bool(values) and all(value_implies(module, each, holds, aliases - 1) for each in values)


def value_implies(module: Module, value: ast.expr, holds: bool = True, aliases: int = _ALIASES) -> bool:
    """Whether a value, at its place, is true (or false) only with an accelerator."""
    if isinstance(value, ast.Constant) and bool(value.value) is not holds:
        return True
    known = [*_split_condition(Condition(value, holds)), *conditions(module, value)]
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
    if not isinstance(test.ops[0], ast.Eq if holds else ast.NotEq) or not names_type(
        test.comparators[0], "cuda"
    ):
        return False
    ours = ast.unparse(test.left) == f"{module.device}.type" and not module.has_own_choice
    return ours or stays(module, test)


def _compares_type(module: Module, test: ast.Compare, holds: bool) -> bool:
    operator, right = test.ops[0], test.comparators[0]
    if _is_count(module, test.left) and type(limit := getattr(right, "value", None)) is int:
        kinds = (ast.Gt, ast.GtE, ast.Eq) if holds else (ast.Lt, ast.LtE, ast.NotEq)
        return isinstance(operator, kinds) and limit >= (0 if isinstance(operator, ast.Gt | ast.LtE) else 1)
    if isinstance(operator, ast.In | ast.NotIn):  # DEVICE.type not in ("cpu", "mps")
        is_outside = isinstance(operator, ast.NotIn) == holds and isinstance(right, ast.Tuple)
        is_shown = isinstance(right, ast.Call) and last_name(right.func) == "str"  # "cuda" in str(device)
        is_cuda = is_shown and isinstance(operator, ast.In) == holds and names_type(test.left, "cuda")
        return is_cuda or (is_outside and any(map(_is_cpu, ast.walk(right))))
    equal = isinstance(operator, ast.Eq) == holds
    if not isinstance(operator, ast.Eq | ast.NotEq):
        return False
    sides = [_type_of(module, each) for each in (test.left, right)]
    if any(names_type(side, "cuda") or names_type(side, "nccl") for side in sides):
        return equal
    return any(map(_is_cpu, sides)) and not equal


def _type_of(module: Module, node: ast.expr) -> ast.expr:
    """Return the type in ``torch.device(type)``, else the node."""
    is_device = (
        isinstance(node, ast.Call) and module.names.qualified(node.func) == "torch.device" and node.args
    )
    return node.args[0] if is_device else node  # type: ignore[attr-defined]


def _starts_with_cuda(call: ast.Call) -> bool:
    return last_name(call.func) == "startswith" and bool(call.args) and names_type(call.args[0], "cuda")


def _is_count(module: Module, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and module.names.qualified(node.func) in _COUNTS


def _is_cpu(node: ast.AST) -> bool:
    return isinstance(node, ast.expr) and names_type(node, "cpu")
