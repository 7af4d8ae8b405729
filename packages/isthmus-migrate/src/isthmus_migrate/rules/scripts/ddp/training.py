"""Recognise the training in a script: loop, loader, model and epochs."""

import ast
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from isthmus_migrate.rules.scripts.program import Function, NotRecognised, Program, Variable, walk_own_scope
from isthmus_migrate.source.calls import last_name

_PASSED_THROUGH = ("enumerate", "tqdm", "trange", "track", "islice", "iter")
_LOADER_ATTRIBUTES = ("dataset", "num_workers")


class Loop(NamedTuple):
    """A training loop.

    Attributes:
        node: the loop over the batches.
        loader: the iterated expression.
        counter: name that counts the batches; "" if none.
        region: code that runs for each batch: the loop's body and the script's functions that it calls.
    """

    node: ast.For
    loader: ast.expr
    counter: str
    region: tuple[ast.stmt, ...]


class Training(NamedTuple):
    """The training of a script.

    Attributes:
        loops: the training loops.
        loaders: the DataLoader calls that they iterate.
        model: the variable for the wrapped model.
    """

    loops: list[Loop]
    loaders: list[ast.Call]
    model: Variable


def recognise(program: Program) -> Training | None:
    """Recognise the training of a script; None if it does not train.

    Raises:
        NotRecognised: the training is not supported.
    """
    loops = _loops(program)
    if not loops:
        return None
    loaders = _loaders(program, loops)
    _check_other_uses(program, loops, loaders)
    return Training(loops, loaders, _model(program, loops))


def is_loader(program: Program, node: ast.expr) -> bool:
    """Whether an expression creates a DataLoader."""
    if not isinstance(node, ast.Call):
        return False
    name = program.qualified(node.func)
    return name.startswith("torch.utils.data.") and name.endswith(".DataLoader")


def unwrap_iterable(program: Program, node: ast.expr) -> list[ast.expr]:
    """Unwrap ``enumerate(tqdm(loader))``, or a variable for it; the loader is the last item."""
    chain = [node]
    while (call := _find_wrapper_call(program, chain[-1])) is not None and call.args[0] not in chain:
        chain += [call, call.args[0]]
    return chain


def _find_wrapper_call(program: Program, node: ast.expr) -> ast.Call | None:
    """Return the call of an iterator wrapper that an expression is or refers to."""
    variable = program.variable(node)
    values = [node] if variable is None else program.values(variable)
    call = values[0] if len(values) == 1 else None
    passes = isinstance(call, ast.Call) and call.args and last_name(call.func) in _PASSED_THROUGH
    return call if passes else None  # type: ignore[return-value]


def _loops(program: Program) -> list[Loop]:
    found: dict[ast.For, Loop] = {}
    for call in program.calls:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "backward"):
            continue
        function = program.function(call)
        if function is not None and (owner := program.owner(function)) is not None and _is_autograd(owner):
            continue
        loop = _loop_around(program, call, ())
        if loop is None:
            raise NotRecognised(call.lineno, "backward() is not in a loop over a DataLoader of this file")
        found[loop] = _describe_loop(program, loop)
    return list(found.values())


def _is_autograd(owner: ast.ClassDef) -> bool:
    return any(last_name(base) in ("Function", "Module") for base in owner.bases)


def _loop_around(program: Program, node: ast.AST, seen: tuple[Function, ...]) -> ast.For | None:
    """Return the loop over a DataLoader around a node or a call of its function."""
    for each in program.ancestors(node):
        if isinstance(each, ast.For) and any(
            is_loader(program, origin) for origin in program.origins(unwrap_iterable(program, each.iter)[-1])
        ):
            return each
        if isinstance(each, Function):
            sites = program.call_sites(each) if each not in seen else []
            around = {_loop_around(program, site, (*seen, each)) for site in sites}
            return around.pop() if len(around) == 1 else None
    return None


def _describe_loop(program: Program, loop: ast.For) -> Loop:
    counter = ""
    chain = unwrap_iterable(program, loop.iter)
    if any(isinstance(each, ast.Call) and last_name(each.func) == "enumerate" for each in chain):
        first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else None
        counter = first.id if isinstance(first, ast.Name) else ""
    return Loop(loop, chain[-1], counter, tuple(_region(program, loop)))


def _region(program: Program, loop: ast.For) -> list[ast.stmt]:
    region = list(loop.body)
    functions: list[Function] = []
    position = 0
    while position < len(region):
        for node in walk_own_scope(region[position]):
            function = program.callee(node) if isinstance(node, ast.Call) else None
            if function is None or function in functions or function.name == "__init__":
                continue
            functions.append(function)
            region += function.body
        position += 1
    return region


def _loaders(program: Program, loops: list[Loop]) -> list[ast.Call]:
    found: dict[ast.Call, None] = {}
    for loop in loops:
        origins = program.origins(loop.loader)
        made = {each: None for each in origins if isinstance(each, ast.Call) and is_loader(program, each)}
        if len(made) != len(set(origins)):
            raise NotRecognised(
                loop.node.lineno, "the training loop's loader is not always a DataLoader of this file"
            )
        if len(made) > 1 and not (_always_trains(program, loop) and _one_runs(program, list(made))):
            raise NotRecognised(
                loop.node.lineno, "one loop iterates several loaders; split training from evaluation"
            )
        found.update(made)
    for call in found:
        _check_loader(program, call)
    return list(found)


def _always_trains(program: Program, loop: Loop) -> bool:
    """Whether every batch of a loop is trained on, so that the loop does not evaluate another loader."""
    calls = (node for part in loop.region for node in walk_own_scope(part) if isinstance(node, ast.Call))
    trained = (
        call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
    )
    return all(not isinstance(each, ast.If) for call in trained for each in _up_to(program, call, loop.node))


def _up_to(program: Program, node: ast.AST, end: ast.AST) -> Iterator[ast.AST]:
    """Yield the ancestors of a node within a statement, or within the node's function."""
    around = program.ancestors(node)
    return itertools.takewhile(lambda each: each is not end and not isinstance(each, Function), around)


def _one_runs(program: Program, calls: list[ast.Call]) -> bool:
    """Whether only one of several calls runs: any two are in different branches of an ``if``."""
    return all(_are_exclusive(program, *pair) for pair in itertools.combinations(calls, 2))


def _are_exclusive(program: Program, one: ast.AST, other: ast.AST) -> bool:
    around_other = [other, *program.ancestors(other)]
    inner = one
    for each in program.ancestors(one):
        if isinstance(each, ast.If) and each in around_other:
            there = around_other[around_other.index(each) - 1]
            return (inner in each.body) != (there in each.body)
        inner = each
    return False


def _check_loader(program: Program, call: ast.Call) -> None:
    given = {keyword.arg for keyword in call.keywords if not is_without_sampler(program, keyword)}
    if given & {"sampler", "batch_sampler"} or len(call.args) > 3:
        raise NotRecognised(call.lineno, "the training loader already has a sampler")
    if any(isinstance(each, ast.Starred) for each in call.args):
        raise NotRecognised(call.lineno, "the training loader's arguments are unpacked from a list")
    data = [each.value for each in call.keywords if each.arg == "dataset"] or call.args[:1]
    if any(_is_iterable(program, origin) for each in data for origin in program.origins(each)):
        raise NotRecognised(
            call.lineno, "an IterableDataset gives every rank the same samples; shard its __iter__"
        )


def is_without_sampler(program: Program, keyword: ast.keyword) -> bool:
    """Whether a keyword argument of a DataLoader is ``sampler=x`` with None for x."""
    if keyword.arg not in ("sampler", "batch_sampler"):
        return False
    variable = program.variable(keyword.value)
    values = [keyword.value] if variable is None else program.values(variable)
    return bool(values) and all(isinstance(each, ast.Constant) and each.value is None for each in values)


def _is_iterable(program: Program, node: ast.expr) -> bool:
    """Whether an expression creates an IterableDataset of this script."""
    made = (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and program.classes.get(node.func.id)
    )
    return bool(made) and any(last_name(base) == "IterableDataset" for base in made.bases)  # type: ignore[union-attr]


def _check_other_uses(program: Program, loops: list[Loop], loaders: list[ast.Call]) -> None:
    """Check that nothing else reads the training loader: it would see only this rank's share of the data."""
    training = {loop.node for loop in loops}
    for node in program.nodes:
        if isinstance(node, ast.For) and node not in training:
            used, reason = unwrap_iterable(program, node.iter)[-1], "is also iterated outside of training"
        elif isinstance(node, ast.Attribute) and node.attr not in _LOADER_ATTRIBUTES:
            used, reason = node.value, f"is read for its {node.attr}"
        else:
            continue
        if set(program.origins(used)) & set(loaders):
            raise NotRecognised(node.lineno, f"the training loader {reason}")


def _model(program: Program, loops: list[Loop]) -> Variable:
    """Return the variable of the model called in the training loop."""
    found: dict[Variable, None] = {}
    for loop in loops:
        for statement in loop.region:
            for node in walk_own_scope(statement):
                if not isinstance(node, ast.Call):
                    continue
                holder = _holder(program, node.func, frozenset())
                if holder is not None and _is_trained(program, node.func, frozenset()):
                    found[holder] = None
    line = loops[0].node.lineno
    if not found:
        raise NotRecognised(line, "no model of this file is called in the training loop")
    if len(found) > 1:
        names = ", ".join(sorted(each.name for each in found))
        raise NotRecognised(line, f"several models are trained: {names}")
    return next(iter(found))


def _holder(program: Program, node: ast.expr, seen: frozenset[Variable]) -> Variable | None:
    """Return the first variable, going back from a use, that is assigned a new object."""
    variable = program.variable(node)
    if variable is None or variable in seen:
        return None
    seen = seen | {variable}
    further = {_holder(program, value, seen) for value in program.values(variable)}
    bound = [each.value for each in program.bindings.get((variable.scope, variable.name), []) if each.value]
    if further and None not in further and len(further) == 1:
        return further.pop()
    return variable if bound else None


def _is_trained(program: Program, node: ast.expr, seen: frozenset[Variable]) -> bool:
    """Whether the parameters of a name's object are used anywhere."""
    variable = program.variable(node)
    if variable is None or variable in seen:
        return False
    for each in program.nodes:
        if (
            isinstance(each, ast.Attribute)
            and each.attr in ("parameters", "named_parameters", "state_dict", "train")
            and program.variable(each.value) == variable
        ):
            return True
    inputs = (part for value in program.values(variable) for part in _moved_module(value))
    return any(_is_trained(program, part, seen | {variable}) for part in inputs)


def _moved_module(value: ast.expr) -> list[ast.expr]:
    """Return the module in ``module.to(device)``."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    return [value]
