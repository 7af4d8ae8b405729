"""Strings, attributes and comparisons that name the CUDA device (IM102 to IM105, IM119, ...)."""

import ast
from collections.abc import Iterator

from isthmus.migrate.analyse.strings import (
    NUMBERED,
    choices,
    claimed,
    formats,
    is_device,
    is_enum_value,
    is_own_type,
    is_word,
    makes_device,
    text,
)
from isthmus.migrate.analyse.syntax import passes_unknown
from isthmus.migrate.source import words
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module

_AUTOMATIC, _REVIEW = Severity.AUTOMATIC, Severity.REVIEW
_AUTOCAST = {"torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"}
_SCALERS = {"torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler"}
_EFFECTS = (ast.Call, ast.Await, ast.Yield, ast.NamedExpr)
_COMPARED = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def detect(module: Module) -> Iterator[Finding]:
    """``"cuda:0"``, ``f"cuda:{rank}"``, ``x.is_cuda``, ``device.type == "cuda"``."""
    if not module.mentions("cuda", "GradScaler", "is_autocast_enabled"):
        return
    done = claimed(module)
    for whole, _, kind in choices(module):
        if kind == "device":
            said = "chooses between CUDA and the CPU"
            yield module.finding(
                "IM104", _AUTOMATIC, whole, '"cuda" or "cpu"', said, "becomes DEVICE, or its type"
            )
    for call in module.of(ast.Call):
        yield from _call(module, call, done)
    for node in module.of(ast.Attribute):
        if node.attr == "is_cuda" and isinstance(node.ctx, ast.Load):
            advice = 'becomes .device.type != "cpu"'
            yield module.finding("IM119", _REVIEW, node, ".is_cuda", "tests for CUDA", advice)
    for comparison in module.of(ast.Compare):
        yield from _comparison(module, comparison, done)
    for formatted in (*module.of(ast.JoinedStr), *module.of(ast.BinOp), *module.of(ast.Call)):
        if formats(formatted) and formatted not in done:
            yield from _numbered(module, formatted)
    yield from _patterns(module)
    for constant in module.of(ast.Constant):
        if constant not in done and _names_cuda(constant):
            yield from _string(module, constant)


def _patterns(module: Module) -> Iterator[Finding]:
    for pattern in module.of(ast.MatchValue):
        if _names_cuda(pattern.value):
            yield _left(module, pattern.value, "is a pattern that matches no other device")


def _call(module: Module, call: ast.Call, done: set[ast.AST]) -> Iterator[Finding]:
    """Find calls that are converted with the string in them; marks these strings as done."""
    if not isinstance(call.func, ast.Attribute):
        yield from _typed(module, call, done)
    elif call.func.attr == "startswith" and call.args and text(call.args[0]) in {"cuda", "cuda:"}:
        if is_device(module, call.func.value):
            advice = 'becomes a test for "cpu"'
            yield module.finding("IM119", _REVIEW, call, "startswith", "tests for CUDA", advice)
    elif call.func.attr == "record_stream":
        said, advice = "raises on the CPU", "is called where there is an accelerator"
        yield module.finding("IM116", _REVIEW, call, "record_stream", said, advice)
    else:
        yield from _typed(module, call, done)


def _typed(module: Module, call: ast.Call, done: set[ast.AST]) -> Iterator[Finding]:
    name = module.names.qualified(call.func)
    given = {each.arg: each.value for each in call.keywords}
    first = call.args[0] if call.args else given.get("type", given.get("device_type"))
    if name in _SCALERS:
        first = call.args[0] if call.args else given.get("device")
        if not (call.args or call.keywords):
            yield module.finding("IM118", _AUTOMATIC, call, name or "", "is of CUDA", "is given DEVICE.type")
    if name == "torch.is_autocast_enabled" and not (call.args or call.keywords):
        yield module.finding("IM118", _AUTOMATIC, call, name, "is of CUDA", "is given DEVICE.type")
    if name == "torch.random.fork_rng" and (call.args or {"devices", "device_type"} & given.keys()):
        done.update(filter(None, [given.get("device_type")]))
        said, advice = "forks generators of devices", "forks none without an accelerator"
        yield module.finding("IM117", _REVIEW, call, name, said, advice)
    if isinstance(first, ast.Constant) and first.value == "cuda" and call not in done:
        if name == "torch.device":
            done.add(first)
            said, advice = "names a CUDA device", "becomes DEVICE"
            yield module.finding("IM105", _AUTOMATIC, call, name, said, advice)
        elif name in _AUTOCAST | _SCALERS:
            done.add(first)
            severity = _REVIEW if passes_unknown(call) else _AUTOMATIC
            yield module.finding("IM118", severity, call, name, "is of CUDA", "is given DEVICE.type")
    if pinned := given.get("pin_memory_device"):
        done.add(pinned)
        said = "is ignored by PyTorch"
        yield module.finding("IM123", _AUTOMATIC, call, "pin_memory_device", said, "is dropped")


def _comparison(module: Module, node: ast.Compare, done: set[ast.AST]) -> Iterator[Finding]:
    """Find comparisons with a string, or with a collection of device types without the CPU."""
    if len(node.comparators) != 1 or not isinstance(node.ops[0], _COMPARED):
        for side in filter(_names_cuda, (node.left, *node.comparators)):
            done.add(side)
            yield _left(module, side, "is compared in a way that is not converted")
        return
    right = node.comparators[0]
    if is_own_type(node.left):
        done.add(right)
        return
    strings = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else []
    types = {text(each) for each in strings}
    is_types = "cuda" in types and not types & {"cpu", ""} and is_device(module, node.left)
    is_one = makes_device(module, right, "cuda") or any(map(_names_cuda, (node.left, right)))
    if is_types or is_one:
        done.update(ast.walk(node) if is_types else (node.left, right))
        advice = "becomes a comparison with the CPU, or with DEVICE.type"
        yield module.finding("IM119", _REVIEW, node, '"cuda"', "is compared with a device", advice)


def _numbered(module: Module, node: ast.expr) -> Iterator[Finding]:
    parent = module.parents[node]
    if isinstance(parent, ast.Dict) and node in parent.keys:
        yield from _tag(module, node, parent)
    else:
        said, advice = "names a CUDA device", 'becomes f"{DEVICE.type}:..."'
        yield module.finding("IM103", _AUTOMATIC, node, '"cuda:..."', said, advice)


def _string(module: Module, node: ast.Constant) -> Iterator[Finding]:
    parent = module.parents[node]
    if isinstance(parent, ast.Dict) and node in parent.keys:
        yield from _key(module, node, parent)
    elif is_enum_value(module, node):
        yield _left(module, node, "is a value of an Enum, which other values are compared with")
    elif not is_word(module, node):
        advice = "becomes DEVICE.type" if text(node) == "cuda" else 'becomes f"{DEVICE.type}:..."'
        yield module.finding("IM102", _AUTOMATIC, node, f'"{text(node)}"', "names a CUDA device", advice)


def _key(module: Module, node: ast.Constant, table: ast.Dict) -> Iterator[Finding]:
    """Find keys of map_location and of tables indexed by device type."""
    if NUMBERED.fullmatch(text(node)):
        yield from _tag(module, node, table)
    elif isinstance(module.parents[table], ast.Subscript) and node in table.keys:
        yield _left(module, node, "is an entry of a table indexed by device type")


def _left(module: Module, node: ast.expr, said: str) -> Finding:
    advice = "add an entry for the device in use, DEVICE.type"
    return module.finding("IM102", Severity.MANUAL, node, f'"{text(node)}"', said, advice)


def _names_cuda(node: ast.expr) -> bool:
    return text(node) == "cuda" or NUMBERED.fullmatch(text(node)) is not None


def _tag(module: Module, node: ast.expr, tags: ast.Dict) -> Iterator[Finding]:
    """Find a key of map_location without the device's key next to it."""
    if not _is_map(module, tags):
        return
    ours = [key for key in tags.keys if isinstance(key, ast.JoinedStr) and not formats(key)]
    if ours:
        return
    if any(not _is_pure(each) for each in ast.walk(tags) if isinstance(each, _EFFECTS)):
        said, advice = "is the tag of a checkpoint; the values call functions", "map the tags by hand"
        yield module.finding("IM108", Severity.MANUAL, node, '"cuda:..."', said, advice)
    else:
        said, advice = "is the tag of a checkpoint from CUDA", "stays, and DEVICE's is added"
        yield module.finding("IM108", _AUTOMATIC, node, '"cuda:..."', said, advice)


def _is_pure(node: ast.AST) -> bool:
    """Whether a node may be evaluated twice."""
    function = getattr(node, "func", None)
    name = getattr(function, "attr", getattr(function, "id", ""))
    return name in words.PURE or words.INTEGERS.search(name) is not None


def _is_map(module: Module, tags: ast.Dict) -> bool:
    """Whether a dictionary is a map_location argument, or is assigned to a similar name."""
    parent = module.parents[tags]
    if isinstance(parent, ast.Assign):
        return any(isinstance(each, ast.Name) and each.id == "map_location" for each in parent.targets)
    if isinstance(parent, ast.keyword):
        return parent.arg == "map_location"
    return (
        isinstance(parent, ast.Call)
        and module.names.qualified(parent.func) == "torch.load"
        and tags in parent.args[1:2]
    )
