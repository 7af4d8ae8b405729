"""Calls of ``set_epoch`` on samplers, so that each epoch has its own order."""

import ast

from isthmus_migrate.rules.scripts.ddp.training import Loop
from isthmus_migrate.rules.scripts.edits import Edits
from isthmus_migrate.rules.scripts.program import Function, NotRecognised, Program, Variable, parameters

_MESSAGE = "the sampler gets the epoch"


def insert_set_epoch(program: Program, edits: Edits, loop: Loop) -> None:
    """Insert ``loader.sampler.set_epoch(epoch)`` in each loop over epochs; nothing for a single epoch.

    Raises:
        NotRecognised: epochs are not counted by a for loop, or the loader has no name there.
    """
    _insert_call(program, edits, loop.node, loop.loader, edits.text(loop.loader), ())


def _insert_call(
    program: Program, edits: Edits, node: ast.AST, loader: ast.expr, name: str, seen: tuple[Function, ...]
) -> None:
    for each in program.ancestors(node):
        if isinstance(each, ast.While):
            raise NotRecognised(each.lineno, "epochs are counted by a while loop")
        if isinstance(each, ast.For):
            epoch = _counter(each)
            if program.variable(loader) is None:
                raise NotRecognised(each.lineno, "the training loader is not in a variable")
            line = f"{name}.sampler.set_epoch({epoch})"
            edits.insert_lines_before(program.statement(node), line, _MESSAGE)
            return
        if isinstance(each, Function):
            if each in seen:
                return
            for site in program.call_sites(each):
                outer, name_there = _seen_from(program, edits, site, each, loader, name)
                _insert_call(program, edits, site, outer, name_there, (*seen, each))
            return


def _counter(loop: ast.For) -> str:
    target = loop.target
    if isinstance(target, ast.Tuple) and isinstance(loop.iter, ast.Call) and target.elts:
        target = target.elts[0]
    if not isinstance(target, ast.Name):
        raise NotRecognised(loop.lineno, "the loop around training does not count epochs")
    return target.id


def _seen_from(
    program: Program, edits: Edits, site: ast.Call, function: Function, loader: ast.expr, name: str
) -> tuple[ast.expr, str]:
    """Return the training loader at the call of the function that iterates it."""
    variable = program.variable(loader)
    if variable is None:
        return loader, name
    if variable.scope is function:
        return _argument(program, edits, site, function, variable)
    if isinstance(variable.scope, ast.ClassDef) and isinstance(site.func, ast.Attribute):
        return loader, f"{edits.text(site.func.value)}.{variable.name}"
    return loader, name


def _argument(
    program: Program, edits: Edits, site: ast.Call, function: Function, variable: Variable
) -> tuple[ast.expr, str]:
    if variable.name in parameters(function):
        value = program.argument(site, function, variable.name)
        if value is not None:
            return value, edits.text(value)
    raise NotRecognised(site.lineno, "the training loader is created in each epoch")
