"""The complete conversion of one script."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from isthmus_migrate.rules.scripts.ddp import advice, devices, epochs, helpers, model
from isthmus_migrate.rules.scripts.ddp.advice import Advice
from isthmus_migrate.rules.scripts.ddp.dataflow import Dataflow
from isthmus_migrate.rules.scripts.ddp.metrics import Metrics
from isthmus_migrate.rules.scripts.ddp.side_effects import SideEffects
from isthmus_migrate.rules.scripts.ddp.training import Loop, Training, is_without_sampler, recognise
from isthmus_migrate.rules.scripts.edits import Change, Edits
from isthmus_migrate.rules.scripts.program import Function, NotRecognised, Program, is_main, walk_own_scope
from isthmus_migrate.source.calls import last_name

_DISTRIBUTED = ("init_process_group", "DistributedDataParallel", "DistributedSampler", "fully_shard", "FSDP")
_SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn")
_FRAMEWORKS = {"accelerate", "deepspeed", "horovod", "lightning", "megatron", "pytorch_lightning"}
_IMPORT = ast.Import | ast.ImportFrom
_STOP = "torch.distributed.destroy_process_group()"
_NAMES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", *helpers.BY_NAME}


class Plan(NamedTuple):
    """The conversion of a script.

    Attributes:
        changes: the changes, in line order.
        advice: places to check by hand.
    """

    changes: list[Change]
    advice: list[Advice]


def plan(program: Program, source: str, device: str) -> Plan | None:
    """Plan the conversion of a script to DistributedDataParallel; None if there is nothing to change.

    Args:
        program: the script, for one device or DataParallel.
        source: its source.
        device: name of the new device constant.

    Raises:
        NotRecognised: the training is not supported.
    """
    training = recognise(program)
    if training is None:
        return None
    _check(program, training)
    edits = Edits(source)
    used = {"start_process_group", "model_group", "training_loader"}
    place = model.wrap(program, edits, training, device)
    for call in training.loaders:
        edits.replace(call.func, "training_loader", "each rank loads its share of every batch")
        for keyword in call.keywords:
            if is_without_sampler(program, keyword):
                edits.delete_keyword(call, keyword)
    for loop in training.loops:
        epochs.insert_set_epoch(program, edits, loop)
        metrics = Metrics(program, edits, loop, device)
        metrics.reduce()
        used |= metrics.used
    started = _start(program, edits, place)
    effects = SideEffects(program, edits, started, device)
    effects.restrict(training)
    devices.release(program, edits)
    _insert_helpers(program, edits, helpers.source(used | effects.used, device))
    edits.edits.insert(0, edits.edits.pop())  # the call that uses them may be there too
    return Plan(edits.changes(), list(advice.find_advice(program)))


def find_distributed_use(program: Program) -> ast.AST | None:
    """Return where a script uses several processes, or a framework that does; None if it does not."""
    for node in program.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) and _FRAMEWORKS.intersection(
            _imported_packages(node)
        ):
            return node
        name = last_name(node)
        if name in _DISTRIBUTED or (name == "spawn" and program.qualified(node) in _SPAWN):  # type: ignore[arg-type]
            return node
    return None


def _imported_packages(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the names of the packages that a statement imports from."""
    names = [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
    names += [each.name for each in statement.names if isinstance(statement, ast.Import)]
    yield from (name.partition(".")[0] for name in names)


def _check(program: Program, training: Training) -> None:
    for node in program.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _NAMES:
            raise NotRecognised(node.lineno, f"the script defines {node.id} itself")
    for loop in training.loops:
        calls = [each for part in loop.region for each in walk_own_scope(part) if isinstance(each, ast.Call)]
        made = [origin for each in calls for origin in program.origins(each.func)]
        for call in (*calls, *made):
            if isinstance(call, ast.Call) and _sums(call):
                raise NotRecognised(
                    call.lineno, "the loss is a sum over the batch; gradients would be averaged"
                )

        _check_loss(program, training, loop)


def _check_loss(program: Program, training: Training, loop: Loop) -> None:
    """Check that the loss is computed by PyTorch or by functions of the script.

    A loss that compares samples with each other (contrastive) is not the mean of the losses of shares of a batch.
    """
    flow = Dataflow(program, loop)
    values = [value for name in flow.losses for value in flow.values(name)]
    imported = {name.partition(".")[0] for name in program.imports.values()} - {"torch"}
    for call in (part for value in values for part in ast.walk(value) if isinstance(part, ast.Call)):
        made = [each.func if isinstance(each, ast.Call) else each for each in program.origins(call.func)]
        unknown = [name for name in map(program.qualified, made) if name.partition(".")[0] in imported]
        if unknown and training.model not in program.reached_variables(call.func):
            raise NotRecognised(
                call.lineno, f"unclear whether {unknown[0]} is a mean over samples that are independent"
            )


def _sums(call: ast.Call) -> bool:
    given = {each.arg: each.value for each in call.keywords}
    reduction, average = given.get("reduction"), given.get("size_average")
    return (isinstance(reduction, ast.Constant) and reduction.value == "sum") or (
        isinstance(average, ast.Constant) and average.value is False
    )


def _start(program: Program, edits: Edits, place: model.Wrap) -> int:
    """Start the process group before the script's code and end it after; return the line of the start."""
    body = program.tree.body
    guard = next(filter(is_main, body), None)
    at_module_level = program.function(place.statement) is None
    if isinstance(guard, ast.If) and (
        not at_module_level or any(place.statement is node for node in ast.walk(guard))
    ):
        block = guard.body
    else:
        block = [each for each in body[_count_leading_statements(body) :] if not _defines(each)]
    if not block:
        raise NotRecognised(1, "nothing runs the training when the file is started as a script")
    first, last = block[0], block[-1]
    edits.insert_lines_before(first, "start_process_group()", "torchrun's ranks become a process group")
    if _exits(last):
        edits.guard(last, "try:", "the process group ends even if the script fails")
        edits.insert_lines_after(last, f"finally:\n    {_STOP}", "")
    else:
        edits.insert_lines_after(last, _STOP, "the process group ends with the script")
    return first.lineno


def _defines(statement: ast.stmt) -> bool:
    if isinstance(statement, _IMPORT | Function | ast.ClassDef):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _count_leading_statements(body: list[ast.stmt]) -> int:
    """Count the leading statements: up to the import of PyTorch, and imports and environment settings after it."""
    torch = (number for number, each in enumerate(body, 1) if isinstance(each, _IMPORT) and _is_torch(each))
    count = next(torch, 0)
    while count < len(body) and _is_head(body[count]):
        count += 1
    return count


def _is_torch(statement: ast.Import | ast.ImportFrom) -> bool:
    return "torch" in _imported_packages(statement)


def _is_head(statement: ast.stmt) -> bool:
    if isinstance(statement, Function | ast.ClassDef):
        return False
    return _defines(statement) or ast.unparse(statement).startswith("os.environ")


def _exits(statement: ast.stmt) -> bool:
    calls = (each.func for each in ast.walk(statement) if isinstance(each, ast.Call))
    return any(last_name(each) in ("exit", "quit") for each in calls)


def _insert_helpers(program: Program, edits: Edits, text: str) -> None:
    head = program.tree.body[: _count_leading_statements(program.tree.body)]
    last = head[-1] if head else None
    message = "helpers for this rank and its collectives"
    if last is None:
        edits.insert_lines_before(program.tree.body[0], f"{text}\n", message)
        return
    assert last.end_lineno is not None
    following = edits.lines[last.end_lineno : last.end_lineno + 2]
    blank = next((count for count, line in enumerate(following) if line.strip()), len(following))
    edits.insert_lines_after(last, f"\n{text}" + "\n" * (1 - blank), message)
