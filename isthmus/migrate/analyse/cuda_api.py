"""Uses of PyTorch's CUDA API, by the table shared with convert."""

import ast
from collections.abc import Iterator

from isthmus.migrate.analyse.strings import claimed, is_on_cuda_only, is_word, text
from isthmus.migrate.analyse.syntax import passes_unknown
from isthmus.migrate.source.cuda_names import (
    AMP_MODULES,
    AMP_NAMES,
    FLAGS,
    CudaName,
    Guard,
    canonical,
    look_up,
)
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module


def detect(module: Module) -> Iterator[Finding]:
    """Find uses of torch.cuda.* and torch.backends.cud* (IM1xx); IM199 if the table lacks the name."""
    if not module.mentions("cuda", "cudnn", "autocast", "parallel"):
        return
    yield from _imports(module)
    chosen = claimed(module)
    aliases = _aliases(module)
    names = [
        name for name in module.of(ast.Name) if isinstance(name.ctx, ast.Load) and name.id not in aliases
    ]
    for node in (*module.of(ast.Attribute), *names):
        parent = module.parents[node]
        if isinstance(parent, ast.Attribute) or node in chosen or _is_alias_of_module(module, parent, node):
            continue  # whole chains are checked, and aliases where they are used
        name = module.names.qualified(node)
        if name and name.startswith("torch."):
            yield from _known(module, node, name)
    for constant in module.of(ast.Constant):
        if (
            text(constant).startswith("torch.cuda.")
            and look_up(text(constant))
            and not is_word(module, constant)
        ):
            yield from _known(module, constant, text(constant))


def _imports(module: Module) -> Iterator[Finding]:
    """Find imports that move to torch.amp or are removed with their uses."""
    for plain in module.of(ast.Import):
        if [each.name for each in plain.names] == ["torch.cuda.amp"]:
            yield _moved(module, plain, "torch.cuda.amp", _bound(plain))
        else:
            yield from _imported(
                module, plain, {each.name: each.asname for each in plain.names if each.asname}
            )
    for origin in module.of(ast.ImportFrom):
        names = {f"{origin.module}.{each.name}": each.asname or each.name for each in origin.names}
        if origin.level:
            continue
        if _is_of_amp(origin):
            yield _moved(module, origin, next(iter(names)), _bound(origin))
        else:
            yield from _imported(module, origin, names)


def _imported(module: Module, node: ast.stmt, names: dict[str, str]) -> Iterator[Finding]:
    """Find problems of an import of torch.cuda names, given with the variables they bind."""
    cuda = [name for name in names if name == "torch.cuda" or name.startswith("torch.cuda.")]
    if not cuda:
        return
    used = [_uses(module, names[name]) for name in cuda]
    severity, advice = Severity.REVIEW, "is removed when its uses are replaced"
    if names[cuda[0]] == "*":
        severity, advice = Severity.MANUAL, "import its names individually, then convert"
    elif not all(used):
        advice = "it is unused: remove it"
    elif all(_is_replaced(module, use) for uses in used for use in uses):
        severity, advice = Severity.AUTOMATIC, "is removed when its uses are converted"
    yield module.finding("IM130", severity, node, cuda[0], "is imported", advice)


def _is_of_amp(node: ast.ImportFrom) -> bool:
    """Whether every name of an import is in torch.amp too."""
    names = {each.name for each in node.names}
    return (node.module in AMP_MODULES and names <= AMP_NAMES) or (
        node.module == "torch.cuda" and names == {"amp"}
    )


def _moved(module: Module, node: ast.stmt, name: str, bound: list[str]) -> Finding:
    """Return the finding of an import that moves to torch.amp if convert supports all its uses."""
    used = [_uses(module, each) for each in bound]
    calls = [_call_of(module, use) for uses in used for use in uses]
    known = not any(call and passes_unknown(call) for call in calls)
    severity = Severity.AUTOMATIC if known and all(used) else Severity.REVIEW
    return module.finding("IM131", severity, node, name, "is imported", "becomes torch.amp")


def _bound(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [each.asname or each.name.partition(".")[0] for each in node.names]


def _uses(module: Module, name: str) -> list[ast.expr]:
    """Return the reads of a variable with their attributes."""
    return [
        _chain(module, node)
        for node in module.of(ast.Name)
        if node.id == name and isinstance(node.ctx, ast.Load)
    ]


def _chain(module: Module, node: ast.expr) -> ast.expr:
    while isinstance(parent := module.parents[node], ast.Attribute):
        node = parent
    return node


def _is_replaced(module: Module, node: ast.expr) -> bool:
    """Whether convert replaces a name."""
    name = module.names.qualified(node) or ""
    while name and look_up(name) is None:
        name = name.rpartition(".")[0]
    entry = look_up(name)
    return entry is not None and _severity(module, node, entry) is not Severity.MANUAL


def _call_of(module: Module, node: ast.expr) -> ast.Call | None:
    """Return the call of a name."""
    parent = module.parents[node]
    return parent if isinstance(parent, ast.Call) and parent.func is node else None


def _is_given_unknown(module: Module, node: ast.expr, entry: CudaName) -> bool:
    """Whether a call passes unknown arguments to autocast, or unsupported ones to the CPU's stream or event."""
    call = _call_of(module, node)
    if call is None:
        return False
    if entry.becomes in _TYPES:
        return bool(call.args or call.keywords)
    return entry.code == "IM118" and passes_unknown(call)


def _aliases(module: Module) -> set[str]:
    """Return variables that alias a name of the table; the finding is at the assignment, not the uses."""
    return {
        target.id
        for assignment in module.of(ast.Assign)
        if look_up(module.names.qualified(assignment.value) or "")
        for target in assignment.targets
        if isinstance(target, ast.Name)
    }


def _known(module: Module, node: ast.expr, name: str) -> Iterator[Finding]:
    """Yield the finding of the longest prefix in the table: ``torch.cuda.nccl`` for ``torch.cuda.nccl.version``."""
    part = name
    while part:
        if entry := look_up(part):
            severity = _severity_of_flag(module, node) if part in FLAGS else _severity(module, node, entry)
            kept = part in FLAGS or entry.guard is Guard.CUDA
            if severity and not (kept and is_on_cuda_only(module, node)):
                said, advice = "belongs to CUDA", _for_people(entry.advice)
                yield module.finding(entry.code, severity, node, canonical(part), said, advice)
            return
        part = part.rpartition(".")[0]
    if name == "torch.cuda" or name.startswith("torch.cuda."):
        said, advice = ("belongs to CUDA and has no rule", "write it with torch.get_device_module(DEVICE)")
        yield module.finding("IM199", Severity.REVIEW, node, name, said, advice)


def _for_people(advice: str) -> str:
    """Return the table's advice with its placeholders replaced."""
    for placeholder, words in _PLACEHOLDERS.items():
        advice = advice.replace(placeholder, words)
    return advice


def _severity(module: Module, node: ast.expr, entry: CudaName) -> Severity:
    """Return the severity; manual if convert does not support the use."""
    parent = module.parents[node]
    if isinstance(parent, ast.ClassDef) and entry.code == "IM116":
        return Severity.MANUAL  # the project's subclass of a CUDA class
    is_text = isinstance(node, ast.Constant)
    doubtful = is_text or _is_given_unknown(module, node, entry)
    return Severity.REVIEW if entry.severity is Severity.AUTOMATIC and doubtful else entry.severity


def _severity_of_flag(module: Module, node: ast.expr) -> Severity | None:
    """Return the severity of setting a flag; None for reading it, which is harmless."""
    if not isinstance(getattr(node, "ctx", None), ast.Store):
        return None
    parent = module.parents[node]
    if not isinstance(parent, ast.Assign):
        return Severity.REVIEW
    line = [each for each in _block(module, parent) if each.lineno == parent.lineno]
    alone = all(
        isinstance(each, ast.Assign) and len(each.targets) == 1 and _is_flag(module, each.targets[0])
        for each in line
    )
    begins = not module.lines[parent.lineno - 1][: min(each.col_offset for each in line)].strip()
    return Severity.AUTOMATIC if alone and begins else Severity.REVIEW


def _block(module: Module, statement: ast.stmt) -> list[ast.stmt]:
    """Return the block that contains a statement."""
    around = vars(module.parents[statement]).values()
    return next(each for each in around if isinstance(each, list) and statement in each)


def _is_flag(module: Module, node: ast.expr) -> bool:
    return (module.names.qualified(node) or "") in FLAGS


def _is_alias_of_module(module: Module, parent: ast.AST, node: ast.expr) -> bool:
    """Whether a node only aliases a module: ``cuda = torch.cuda``."""
    return (
        isinstance(parent, ast.Assign)
        and node is parent.value
        and all(isinstance(target, ast.Name) for target in parent.targets)
        and look_up(module.names.qualified(node) or "") is None
    )


_TYPES = {"{module}.Stream", "{module}.Event"}
_PLACEHOLDERS = {"{module}": "torch.get_device_module(DEVICE)", "{device}": "DEVICE", "{type}": "DEVICE.type"}
