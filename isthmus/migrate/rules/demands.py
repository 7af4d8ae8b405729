"""Statements that fail without an accelerator, before and after a conversion: what follows needs no test."""

import ast
from collections.abc import Iterator

from isthmus.migrate.rules.indices import is_integer
from isthmus.migrate.source.assigned import assigned
from isthmus.migrate.source.blocks import earlier
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.names import FUNCTIONS

_GROUP = "torch.distributed.init_process_group"


def follows_demand(module: Module, node: ast.AST) -> bool:
    """Whether a node runs only after a demand in its function, or in the ``__init__`` of its class.

    That is ``x.to(rank)``, or ``init_process_group(device_id=torch.device(...))``, which refuses the CPU.
    """
    if not module.mentions(".to(", "device_id="):
        return False
    below = node
    for above in module.enclosing(node):
        if any(_demands(module, each) for each in earlier(above, below)):
            return True
        if isinstance(above, FUNCTIONS):
            return _is_initialized(module, above)
        below = above
    return False


def _is_initialized(module: Module, method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a method of objects whose ``__init__`` fails without an accelerator."""
    owner = module.parents[method]
    if not isinstance(owner, ast.ClassDef) or method.name in ("__init__", "__new__") or method.decorator_list:
        return False
    made = (each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    return any(_demands(module, each) for function in made for each in function.body)


def _demands(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement always moves something to the device of an index, or makes a group for a device."""
    if isinstance(statement, ast.With):
        return any(_demands(module, each) for each in statement.body)
    if (
        not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return)
        or statement.value is None
    ):
        return False
    return any(_moves(module, call) or _makes_group(module, call) for call in _always(statement.value))


def _moves(module: Module, call: ast.Call) -> bool:
    is_to = isinstance(call.func, ast.Attribute) and call.func.attr == "to"
    return is_to and bool(call.args) and is_integer(module, call.args[0])


def _makes_group(module: Module, call: ast.Call) -> bool:
    if module.names.qualified(call.func) != _GROUP:
        return False
    given = [each.value for each in call.keywords if each.arg == "device_id"]
    if given and isinstance(given[0], ast.Name | ast.Attribute):
        given = assigned(module, given[0])
    made = (module.names.qualified(each.func) if isinstance(each, ast.Call) else "" for each in given)
    return bool(given) and all(each == "torch.device" for each in made)


def _always(node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of a chain, ``model.eval().to(rank)``, and those that are its arguments."""
    if isinstance(node, ast.Call):
        yield node
        for argument in node.args:
            yield from _always(argument)
        if isinstance(node.func, ast.Attribute):
            yield from _always(node.func.value)
