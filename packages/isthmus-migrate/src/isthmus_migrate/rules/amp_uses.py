"""Uses of ``torch.cuda.amp``, and which of them are converted; an import moves only if all of its uses are."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.functions import is_type
from isthmus_migrate.rules.rule import is_read
from isthmus_migrate.source import versions
from isthmus_migrate.source.assignments import bindings, find_reads
from isthmus_migrate.source.calls import argument, unpacks
from isthmus_migrate.source.cuda_names import AMP_MODULES, AMP_NAMES, canonical
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.regions import region

AUTOCAST = "torch.cuda.amp.autocast"
SCALER = "torch.cuda.amp.GradScaler"
FUNCTIONS = ("torch.cuda.amp.custom_fwd", "torch.cuda.amp.custom_bwd")
AUTOCAST_PARAMETERS = ("enabled", "dtype", "cache_enabled")
SCALER_PARAMETERS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
PARAMETERS = {AUTOCAST: AUTOCAST_PARAMETERS, SCALER: SCALER_PARAMETERS}
_REORDERED = "has unknown arguments, and torch.amp takes them in another order"
MAY_BE_ON = "has unknown arguments, so it may be enabled on the CPU"
BY_VARIABLE = "is given to autocast through a variable, so it may be enabled on the CPU"
NOT_CALLED = "is passed on, and torch.amp's takes the device type first"
_BASE = "is a base class, whose `__init__` takes the device type in torch.amp"


def amp_name(module: Module, node: ast.expr) -> str:
    """Return the dotted name of a function or class of mixed precision, or ""."""
    name = canonical(module.names.qualified(node) or "")
    return name if "autocast" in name or ".amp." in name else ""


def find_obstacle(module: Module, node: ast.expr) -> str:
    """Return why a use of a name of ``torch.cuda.amp`` is not converted, or "".

    Args:
        module: the module.
        node: a name that is read: called, a decorator, a type or a value.
    """
    name, call = amp_name(module, node), module.parents[node]
    if module.is_scripted(node):
        return "is in code that TorchScript compiles, which cannot use the module's device"
    if not module.is_placed(node):
        return "is inside an f-string"
    if isinstance(call, ast.Call) and call.func is node:
        return call_obstacle(module, call, PARAMETERS[name], name == AUTOCAST) if name in PARAMETERS else ""
    if isinstance(call, ast.ClassDef):
        return "" if node in call.decorator_list else _BASE
    if is_type(module, node) or name in FUNCTIONS:
        return ""
    calls = calls_of_value(module, node)
    if calls is None or any(unpacks(each) or (each.args and name == AUTOCAST) for each in calls):
        return NOT_CALLED
    return ""


def call_obstacle(module: Module, call: ast.Call, parameters: tuple[str, ...], reorders: bool) -> str:
    """Return why a call of autocast or of a gradient scaler is not converted, or ""."""
    unpacked = unpacks(call)
    if unpacked == "*" and reorders:
        return _REORDERED
    if unpacked and not module.around.target and argument(call, parameters, "enabled") is None:
        return MAY_BE_ON
    return ""


def calls_of_value(module: Module, node: ast.expr) -> list[ast.Call] | None:
    """Return the calls of the variable that a name is assigned to; None if the variable is used otherwise."""
    holder = module.parents[node]
    while isinstance(holder, ast.IfExp):
        holder = module.parents[holder]
    target = holder.targets[0] if isinstance(holder, ast.Assign) and len(holder.targets) == 1 else None
    if not isinstance(target, ast.Name):
        return None
    calls: list[ast.Call] = []
    for use in find_reads(module, target):
        parent = module.parents[use]
        if not (isinstance(parent, ast.Call) and parent.func is use):
            return None
        calls.append(parent)
    return calls


def alias_of_calls(module: Module, node: ast.expr) -> list[ast.Call]:
    """Return the calls of the one variable that holds autocast, or autocast or ``nullcontext``; [] if others may."""
    parent = module.parents[node]
    if isinstance(parent, ast.IfExp):
        other = parent.orelse if node is parent.body else parent.body
        if node is parent.test or module.names.qualified(other) != "contextlib.nullcontext":
            return []
        parent = module.parents[parent]
    is_only = isinstance(parent, ast.Assign) and len(bindings(module, parent.targets[0])) == 1
    return calls_of_value(module, node) or [] if is_only else []


def is_movable(module: Module, node: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import becomes one from ``torch.amp``: it has every name, and every use of them is converted."""
    if isinstance(node, ast.Import):
        known = [each.name for each in node.names] == ["torch.cuda.amp"]
    else:
        names = {each.name for each in node.names}
        of_amp = node.module in AMP_MODULES and names <= AMP_NAMES
        known = not node.level and (of_amp or (node.module == "torch.cuda" and names == {"amp"}))
    if not known:
        return False
    if isinstance(node, ast.Import) and node.names[0].asname is None:
        return False  # it binds `torch`
    bound = [each.asname or each.name for each in node.names]
    if any(map(module.is_shared, bound)):
        return False
    used = [list(_uses(module, each)) for each in bound]
    return all(used) and all(_is_converted(module, each) for uses in used for each in uses)


def moved_names(module: Module) -> set[str]:
    """Return the names bound by imports that move to ``torch.amp``."""
    imports: list[ast.Import | ast.ImportFrom] = [*module.of(ast.Import), *module.of(ast.ImportFrom)]
    moved = (each for each in imports if is_movable(module, each))
    return {alias.asname or alias.name for each in moved for alias in each.names}


def _uses(module: Module, name: str) -> Iterator[ast.expr]:
    """Yield the reads of a variable with their attributes."""
    for node in module.of(ast.Name):
        if node.id == name and is_read(node):
            whole: ast.expr = node
            while isinstance(parent := module.parents[whole], ast.Attribute):
                whole = parent
            yield whole


def _is_converted(module: Module, node: ast.expr) -> bool:
    name = amp_name(module, node)
    is_lacking = versions.find_missing(name.replace("torch.cuda.amp.", "torch.amp."), module.around.torch)
    known = name in (AUTOCAST, SCALER, *FUNCTIONS) and not is_lacking
    return known and not find_obstacle(module, node) and region(module, node) is None
