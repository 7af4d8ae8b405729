"""Replace DataParallel by DistributedDataParallel and adapt accesses to the inner module."""

import ast
import itertools
from typing import NamedTuple

from isthmus_migrate.rules.scripts.ddp.dataflow import Dataflow
from isthmus_migrate.rules.scripts.ddp.training import Loop, Training
from isthmus_migrate.rules.scripts.edits import Edits
from isthmus_migrate.rules.scripts.program import (
    Function,
    NotRecognised,
    Program,
    Variable,
    parameters,
    walk_own_scope,
)
from isthmus_migrate.source.calls import argument

_PLACES = ("to", "cuda", "half", "float", "double", "bfloat16")
_OF_WRAPPED = {"train", "eval", "parameters", "zero_grad", "module", "no_sync", "requires_grad_", "training"}
_FORWARD = {"forward", "training_step", "compute_loss", "loss", "step"}


class Wrap(NamedTuple):
    """The place where the model is wrapped.

    Attributes:
        statement: the statement before it.
        name: source of the variable there.
    """

    statement: ast.stmt
    name: str


def is_data_parallel(program: Program, node: ast.expr) -> bool:
    """Whether a node names ``torch.nn.DataParallel``."""
    name = program.qualified(node)
    return name.startswith("torch.nn.") and name.endswith(".DataParallel")


def wrap(program: Program, edits: Edits, training: Training, device: str) -> Wrap:
    """Remove DataParallel and wrap the model after it is moved to its device.

    Raises:
        NotRecognised: DataParallel or the model is used in an unsupported way.
    """
    calls = [call for call in program.calls if is_data_parallel(program, call.func)]
    place = _place(program, edits, training)
    for call in calls:
        _take_off(program, edits, call)
    _point_to_ddp(program, edits, calls)
    options = ", process_group=model_group()"
    if calls and not _moves_inputs(
        program, training
    ):  # DataParallel moves inputs; DistributedDataParallel does with device_ids
        options += f', device_ids=[LOCAL_RANK] if {device}.type != "cpu" else None'
    line = f"{place.name} = torch.nn.parallel.DistributedDataParallel({place.name}{options})"
    edits.insert_lines_after(place.statement, line, "the model is wrapped after it is moved to its device")
    _ask_module(program, edits, training.model, place)
    return place


def _moves_inputs(program: Program, training: Training) -> bool:
    """Whether the loops that run the model, for training or evaluation, move its inputs themselves."""
    others = (each for each in program.nodes if isinstance(each, ast.For))
    loops = [*training.loops, *(Loop(each, each.iter, "", tuple(each.body)) for each in others)]
    for loop in loops:
        flow = Dataflow(program, loop)
        calls = (each for each in flow.nodes if isinstance(each, ast.Call))
        inputs = [
            arg
            for each in calls
            if training.model in program.reached_variables(each.func)
            for arg in each.args
        ]
        if not all(map(flow.is_moved, inputs)):
            return False
    return True


def _place(program: Program, edits: Edits, training: Training) -> Wrap:
    """Find the last statement before training that creates or moves the model."""
    model = training.model
    bound = program.assignments_of(model)
    target = _target(bound[0].statement, program, model)
    block = program.block(bound[0].statement)
    function = program.function(bound[0].statement)
    if any(program.function(each.statement) is not function for each in bound):
        raise NotRecognised(bound[-1].statement.lineno, "the model is assigned in several functions")
    while not all(_holds(block, each.statement) for each in bound):
        parent = program.parents[block[0]]
        if not isinstance(parent, ast.stmt):
            raise NotRecognised(bound[0].statement.lineno, "the model is assigned in several places")
        block = program.block(parent)
    untrained = itertools.takewhile(lambda each: not _trains(program, each, training), block)
    placing = [each for each in untrained if _makes_or_moves(program, each, model)]
    if not placing:
        raise NotRecognised(bound[0].statement.lineno, "the model is created in the training loop")
    return Wrap(placing[-1], edits.text(target))


def _trains(program: Program, statement: ast.stmt, training: Training) -> bool:
    """Whether training runs within a statement, or is called from it."""
    loops = [loop.node for loop in training.loops]
    waiting: list[ast.AST] = [statement]
    seen: set[ast.AST] = set()
    while waiting:
        part = waiting.pop()
        if part in seen:
            continue
        seen.add(part)
        nodes = [part, *ast.walk(part)] if isinstance(part, Function) else list(walk_own_scope(part))
        if any(node in loops for node in nodes):
            return True
        called = (program.callee(node) for node in nodes if isinstance(node, ast.Call))
        waiting += [function for function in called if function is not None]
    return False


def _target(statement: ast.stmt, program: Program, model: Variable) -> ast.expr:
    for node in ast.walk(statement):
        is_target = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
        if is_target and program.variable(node) == model:  # type: ignore[arg-type]
            return node  # type: ignore[return-value]
    raise NotRecognised(statement.lineno, "the model is not assigned by a plain assignment")


def _holds(block: list[ast.stmt], statement: ast.stmt) -> bool:
    return any(statement is node for each in block for node in ast.walk(each))


def _makes_or_moves(program: Program, statement: ast.stmt, model: Variable) -> bool:
    if isinstance(statement, Function | ast.ClassDef):
        return False
    for node in ast.walk(statement):
        if isinstance(node, ast.Name | ast.Attribute) and program.variable(node) == model:
            if isinstance(node.ctx, ast.Store):
                return True
            parent = program.parents[node]
            if isinstance(parent, ast.Attribute) and parent.attr in _PLACES:
                return True
    return False


def _take_off(program: Program, edits: Edits, call: ast.Call) -> None:
    """Replace ``DataParallel(x, ...)`` by ``x``; remove ``x = x``, and an ``if`` with nothing else."""
    module = argument(call, ("module",), "module")
    if module is None:
        raise NotRecognised(call.lineno, "DataParallel without a module")
    statement = program.statement(call)
    alone = isinstance(statement, ast.Assign) and statement.value is call
    if not (alone and edits.text(statement.targets[0]) == edits.text(module)):  # type: ignore[attr-defined]
        edits.unwrap(call, module, "DataParallel is removed")
        return
    parent = program.parents[statement]
    if not isinstance(parent, ast.If) or statement not in parent.body:
        edits.delete_lines(statement, "DataParallel is removed")
        return
    rest = [each for each in parent.body if each is not statement]
    if not parent.orelse and all(_is_print(each) for each in rest) and not _is_elif(program, parent):
        edits.delete_lines(parent, "DataParallel is removed")
    elif rest:
        edits.delete_lines(statement, "DataParallel is removed")
    else:
        edits.replace(statement, "pass", "DataParallel is removed")


def _is_elif(program: Program, node: ast.If) -> bool:
    parent = program.parents[node]
    return isinstance(parent, ast.If) and node in parent.orelse


def _is_print(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"


def _point_to_ddp(program: Program, edits: Edits, calls: list[ast.Call]) -> None:
    """Replace DataParallel by DistributedDataParallel in type checks."""
    called = {call.func for call in calls}
    for node in program.nodes:
        if (
            isinstance(node, ast.Name | ast.Attribute)
            and node not in called
            and is_data_parallel(program, node)
        ):
            edits.replace(node, "torch.nn.parallel.DistributedDataParallel", "the class that wraps the model")


def _ask_module(program: Program, edits: Edits, model: Variable, place: Wrap) -> None:
    wrapped = _wrapped(program, model, place)
    for node in program.nodes:
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        variable = program.variable(node)
        if variable not in wrapped or not _is_after(program, node, variable, model, place):
            continue
        parent = program.parents[node]
        if isinstance(parent, ast.Attribute) and parent.attr not in _OF_WRAPPED:
            _check_forward(program, parent)
            edits.insert(edits.end(node), ".module", f"{parent.attr} of the wrapped module", node.lineno)
        elif isinstance(parent, ast.Call) and program.qualified(parent.func) == "torch.save":
            edits.insert(edits.end(node), ".module", "the module itself is saved", node.lineno)


def _check_forward(program: Program, attribute: ast.Attribute) -> None:
    """Check that the model runs through the wrapper's forward; other methods do not reduce gradients."""
    is_called = isinstance(program.parents[attribute], ast.Call)
    if is_called and attribute.attr in _FORWARD:
        raise NotRecognised(attribute.lineno, f"the model runs by {attribute.attr}(), bypassing its wrapper")


def _is_after(
    program: Program, node: ast.expr, variable: Variable | None, model: Variable, place: Wrap
) -> bool:
    """Whether a use of the model comes after it was wrapped."""
    if variable != model or program.function(node) is not program.function(place.statement):
        return True
    assert place.statement.end_lineno is not None
    return node.lineno > place.statement.end_lineno


def _wrapped(program: Program, model: Variable, place: Wrap) -> set[Variable]:
    """Return the variables that hold the wrapped model, including those it is passed or assigned to."""
    found = {model}
    before: set[Variable] = set()
    waiting = [model]
    while waiting:
        variable = waiting.pop()
        for node in program.nodes:
            if not isinstance(node, ast.Name | ast.Attribute) or program.variable(node) != variable:
                continue
            receiver = _receiver(program, node)
            if receiver is None:
                continue
            if not _is_after(program, node, variable, model, place):
                before.add(receiver)
            elif receiver not in found:
                found.add(receiver)
                waiting.append(receiver)
    found -= {each for each in before if each == model}
    both = sorted(each.name for each in before & found if each != model)
    if both:
        raise NotRecognised(
            place.statement.lineno, f"{both[0]} holds the model before and after it is wrapped"
        )
    return found | {model}


def _receiver(program: Program, node: ast.expr) -> Variable | None:
    """Return the variable that a name is passed or assigned to unchanged."""
    parent = program.parents[node]
    if isinstance(parent, ast.Assign) and parent.value is node and len(parent.targets) == 1:
        return program.variable(parent.targets[0])
    call = program.parents[parent] if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or node is call.func:
        return None
    function = program.callee(call)
    if function is None:
        return None
    for name in parameters(function):
        if program.argument(call, function, name) is node:
            return Variable(function, name)
    return None
