"""Names that conversion uses in a module: of PyTorch, and of the device constant."""

import ast
import itertools
import re
from collections.abc import Collection, Iterable, Iterator

from isthmus_migrate.source import versions
from isthmus_migrate.source.versions import Version

_NAMES = ("DEVICE", "ACCELERATOR", "ACCELERATOR_DEVICE")
_NEUTRAL = '{torch}.accelerator.current_accelerator(check_available=True) or {torch}.device("cpu")'
_CHOICE_OF_DEVICES = '{torch}.device("cuda") if {torch}.cuda.is_available() else {torch}.device("cpu")'
_CHOICE = '{torch}.device("cuda" if {torch}.cuda.is_available() else "cpu")'  # before torch.accelerator
_PARTS = ("torch.distributed", "torch.nn", "torch.optim")
_DEVICES = re.compile(r"cuda|gpu|nccl|amp|autocast|GradScaler|Parallel|device", re.IGNORECASE)
_IF = '{{torch}}.accelerator.current_accelerator() if {{torch}}.accelerator.{}() else {{torch}}.device("cpu")'
_IN_2_6, _COUNTED = _IF.format("is_available"), _IF.format("device_count")
_PINNED = '{torch}.device("{target}")'


def torch_name(tree: ast.Module) -> str:
    """Return the name under which a module imports PyTorch; "" if it does not.

    Imports that always run are preferred to those under an ``if`` or ``try``.
    """
    return _torch(always_run_statements(tree.body)) or _torch(tree.body)


def parts_of_torch(tree: ast.Module) -> dict[str, tuple[str, int]]:
    """Return the names under which a module imports modules of PyTorch that conversion uses, with the lines."""
    found: dict[str, tuple[str, int]] = {}
    for statement in tree.body:
        for alias in statement.names if isinstance(statement, ast.Import) else ():
            if alias.name in _PARTS and alias.asname:
                found[alias.name] = alias.asname, statement.lineno
        if isinstance(statement, ast.ImportFrom) and statement.module == "torch" and not statement.level:
            for alias in statement.names:
                if f"torch.{alias.name}" in _PARTS:
                    found[f"torch.{alias.name}"] = alias.asname or alias.name, statement.lineno
    return found


def is_torch_optional(tree: ast.Module) -> bool:
    """Whether a module imports PyTorch only under an ``if`` or ``try``, and so may run without it."""
    return bool(_torch(tree.body)) and not _torch(always_run_statements(tree.body))


def device_name(
    tree: ast.Module, text: str, torch: str, target: str, taken: Collection[str], version: Version = ()
) -> str:
    """Return the name of the device constant: that of an earlier conversion, or one that is free.

    Args:
        tree: of the module.
        text: of the module.
        torch: the module's name of PyTorch.
        target: device type to convert for, or "".
        taken: names that are not free in the project.
        version: oldest version of PyTorch that the result has to run on; () for any.
    """
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and is_device_value(statement.value, torch, target, version):
            named = statement.targets[0]
            if isinstance(named, ast.Name) and named.id in _NAMES:
                return named.id
    if chosen := own_choice(tree, torch):
        return chosen
    numbered = (f"{_NAMES[-1]}_{number}" for number in itertools.count(2))
    candidates = itertools.chain(_NAMES, numbered)
    return next(name for name in candidates if not _mentions(text, name) and name not in taken)


def own_choice(tree: ast.Module, torch: str) -> str:
    """Return the name of a module's own constant that is CUDA or the CPU, ``DEVICE``; "" if it has none.

    It is bound once, and what runs before it has nothing to do with devices.
    """
    for index, statement in enumerate(tree.body):
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        named = statement.targets[0]
        if isinstance(named, ast.Name) and named.id in _NAMES and _is_choice(statement.value, torch):
            is_first = not any(map(_may_use_devices, tree.body[:index]))
            return named.id if is_first and _bindings(tree, named.id) == 1 else ""
    return ""


def _is_choice(node: ast.AST, torch: str) -> bool:
    choices = (_CHOICE, _CHOICE_OF_DEVICES)
    return ast.dump(node) in {
        ast.dump(ast.parse(each.format(torch=torch), mode="eval").body) for each in choices
    }


def _may_use_devices(statement: ast.stmt) -> bool:
    """Whether a statement before the constant may be converted to one that uses it when it runs."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return False
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        parts: list[ast.AST] = [statement.args, *statement.decorator_list]
    else:
        parts = [statement]
    return any(_DEVICES.search(ast.unparse(each)) for each in parts)


def _bindings(tree: ast.Module, name: str) -> int:
    """Return how often a module binds a name, in any scope."""
    names = (each for each in ast.walk(tree) if isinstance(each, ast.Name | ast.arg | ast.Global | ast.alias))
    return sum(
        name in each.names
        if isinstance(each, ast.Global)
        else name == (each.asname or each.name)
        if isinstance(each, ast.alias)
        else name == each.arg
        if isinstance(each, ast.arg)
        else name == each.id and not isinstance(each.ctx, ast.Load)
        for each in names
    )


def device_value(torch: str, target: str, version: Version = (), before_choice: bool = False) -> str:
    """Return the source of the device constant's value, for a version of PyTorch.

    Args:
        torch: the module's name of PyTorch.
        target: device type to convert for, or "".
        version: oldest version of PyTorch that the result has to run on; () for any.
        before_choice: whether the project sets ``CUDA_VISIBLE_DEVICES`` after imports, when a test for available
            devices has initialized CUDA. A count of the devices does not initialize it.
    """
    return _value(target, version, before_choice).format(torch=torch, target=target)


def initializes(target: str, version: Version) -> bool:
    """Whether every form of the device constant for a version of PyTorch initializes CUDA."""
    return not target and bool(version) and version < versions.COUNTS_WITHOUT_CUDA


def _value(target: str, version: Version, before_choice: bool) -> str:
    """Return the template of the device constant's value."""
    since = versions.SINCE
    if target:
        return _PINNED
    if before_choice and not initializes(target, version):
        return _COUNTED
    if not version or version >= since["accelerator.current_accelerator(check_available=True)"]:
        return _NEUTRAL
    return _CHOICE if version < since["accelerator.current_accelerator"] else _IN_2_6


def is_device_value(node: ast.AST, torch: str, target: str, version: Version = ()) -> bool:
    """Whether an expression is the device constant's value."""
    if isinstance(node, ast.Call):  # a chain of calls may be long
        first = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_possible = isinstance(first, ast.Name) and first.id == torch
    else:  # a table may be large
        is_possible = isinstance(node, ast.BoolOp | ast.IfExp)
    if not is_possible:
        return False
    values = (device_value(torch, target, version, before_choice) for before_choice in (False, True))
    return ast.dump(node) in {ast.dump(ast.parse(value, mode="eval").body) for value in values}


def is_own_type(node: ast.AST) -> bool:
    """Whether an expression is the type of a device constant: ``DEVICE.type``."""
    if not (isinstance(node, ast.Attribute) and node.attr == "type" and isinstance(node.value, ast.Name)):
        return False
    return re.fullmatch(rf"{'|'.join(_NAMES)}(_\d+)?", node.value.id) is not None


def defines(tree: ast.Module, name: str) -> bool:
    """Whether a module assigns a name at its top level."""
    return any(
        isinstance(statement, ast.Assign)
        and any(isinstance(each, ast.Name) and each.id == name for each in statement.targets)
        for statement in tree.body
    )


def find_mentions(text: str) -> tuple[bool, frozenset[str]]:
    """Return whether a source imports ``*``, and which names of the constant it uses for something else."""
    used = (name for name in _NAMES if _mentions(text, name) and not _is_constant(text, name))
    return "import *" in text, frozenset(used)


def unavailable_names(found: Iterable[tuple[bool, frozenset[str]]]) -> frozenset[str]:
    """Return names that the device constant cannot have in a project.

    With ``from module import *``, the constant would get into modules that use its name for something else.

    Args:
        found: of each source, what :func:`find_mentions` returns.
    """
    parts = list(found)
    if not any(imports_all for imports_all, _ in parts):
        return frozenset()
    return frozenset().union(*(names for _, names in parts))


def always_run_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements that always run, including those of ``with`` and ``try`` that cannot be skipped."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from statement.body
        elif isinstance(statement, ast.Try):
            if all(map(gives_up, statement.handlers)):
                yield from statement.body
        elif not isinstance(statement, ast.If):
            yield statement


def imports(body: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield imports at the top level of a module, including those under an ``if``, ``try`` or ``with``."""
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            for part in ("body", "handlers", "orelse", "finalbody"):
                yield from imports(getattr(statement, part, ()))
        elif isinstance(statement, ast.ExceptHandler):
            yield from imports(statement.body)


def _torch(body: Iterable[ast.stmt]) -> str:
    for statement in imports(body):
        for alias in statement.names if isinstance(statement, ast.Import) else ():
            if alias.asname is None and alias.name.partition(".")[0] == "torch":
                return "torch"
            if alias.name == "torch":
                return alias.asname or ""
    return ""


def gives_up(handler: ast.ExceptHandler) -> bool:
    """Whether an exception handler ends the module."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise):
        return True
    return isinstance(last, ast.Expr) and re.match(r"(sys\.)?exit\(", ast.unparse(last)) is not None


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _is_constant(text: str, name: str) -> bool:
    """Whether a source has the constant from an earlier conversion."""
    value = r"\w+\.(accelerator\.current_accelerator\(|device\([\"']\w+[\"']( if |\)$))"
    return re.search(rf"^{name} = \(?\s*{value}", text, re.MULTILINE) is not None
