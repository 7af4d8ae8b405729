"""Uses of PyTorch's CUDA API, by the table shared with the conversion."""

import ast
from collections.abc import Iterator

from isthmus.migrate.analyse.module import Module
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


def detect(module: Module) -> Iterator[Finding]:
    """Uses of torch.cuda.*, torch.backends.cud* (IM1xx); a name of torch.cuda that the table lacks is IM199."""
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
            continue  # the whole chain is looked at, and what an alias stands for where it is used
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
    """Imports that follow their uses: to torch.amp, or out of the source."""
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
    """An import of names of torch.cuda, each with the variable that it binds."""
    cuda = [name for name in names if name == "torch.cuda" or name.startswith("torch.cuda.")]
    if not cuda:
        return
    used = [_uses(module, names[name]) for name in cuda]
    severity, advice = Severity.REVIEW, "goes when its uses are replaced"
    if names[cuda[0]] == "*":
        severity, advice = Severity.MANUAL, "import its names one by one, and convert then"
    elif not all(used):
        advice = "nothing uses it: leave it out"
    elif all(_is_replaced(module, use) for uses in used for use in uses):
        severity, advice = Severity.AUTOMATIC, "goes when its uses are converted"
    yield module.finding("IM130", severity, node, cuda[0], "is imported", advice)


def _is_of_amp(node: ast.ImportFrom) -> bool:
    """Whether every name of an import is in torch.amp too."""
    names = {each.name for each in node.names}
    return (node.module in AMP_MODULES and names <= AMP_NAMES) or (
        node.module == "torch.cuda" and names == {"amp"}
    )


def _moved(module: Module, node: ast.stmt, name: str, bound: list[str]) -> Finding:
    """An import that becomes one from torch.amp, if what it binds is used, and as the conversion understands."""
    used = [_uses(module, each) for each in bound]
    calls = [_call_of(module, use) for uses in used for use in uses]
    known = not any(call and passes_unknown(call) for call in calls)
    severity = Severity.AUTOMATIC if known and all(used) else Severity.REVIEW
    return module.finding("IM131", severity, node, name, "is imported", "becomes torch.amp")


def _bound(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [each.asname or each.name.partition(".")[0] for each in node.names]


def _uses(module: Module, name: str) -> list[ast.expr]:
    """Where a variable is read, with the attributes behind it."""
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
    """Whether the conversion writes something else for a name."""
    name = module.names.qualified(node) or ""
    while name and look_up(name) is None:
        name = name.rpartition(".")[0]
    entry = look_up(name)
    return entry is not None and _severity(module, node, entry) is not Severity.MANUAL


def _call_of(module: Module, node: ast.expr) -> ast.Call | None:
    """The call that calls a name."""
    parent = module.parents[node]
    return parent if isinstance(parent, ast.Call) and parent.func is node else None


def _is_given_unknown(module: Module, node: ast.expr, entry: CudaName) -> bool:
    """Whether a call gives autocast what is not known, or a stream or event what the CPU's does not take."""
    call = _call_of(module, node)
    if call is None:
        return False
    if entry.becomes in _TYPES:
        return bool(call.args or call.keywords)
    return entry.code == "IM118" and passes_unknown(call)


def _aliases(module: Module) -> set[str]:
    """Variables that are assigned a name of the table: found where they are assigned, not where they are used."""
    return {
        target.id
        for assignment in module.of(ast.Assign)
        if look_up(module.names.qualified(assignment.value) or "")
        for target in assignment.targets
        if isinstance(target, ast.Name)
    }


def _known(module: Module, node: ast.expr, name: str) -> Iterator[Finding]:
    """For the longest part of a name that the table has: ``torch.cuda.nccl`` of ``torch.cuda.nccl.version``."""
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
        said, advice = (
            "belongs to CUDA, and no rule knows it",
            "write it with torch.get_device_module(DEVICE)",
        )
        yield module.finding("IM199", Severity.REVIEW, node, name, said, advice)


def _for_people(advice: str) -> str:
    """The table's advice, whose placeholders are those of a conversion."""
    for placeholder, words in _PLACEHOLDERS.items():
        advice = advice.replace(placeholder, words)
    return advice


def _severity(module: Module, node: ast.expr, entry: CudaName) -> Severity:
    """Who has to act; a person where the conversion leaves the way in which a name is used."""
    parent = module.parents[node]
    if isinstance(parent, ast.ClassDef) and entry.code == "IM116":
        return Severity.MANUAL  # a class of the project's own that is CUDA's
    is_text = isinstance(node, ast.Constant)
    doubtful = is_text or _is_given_unknown(module, node, entry)
    return Severity.REVIEW if entry.severity is Severity.AUTOMATIC and doubtful else entry.severity


def _severity_of_flag(module: Module, node: ast.expr) -> Severity | None:
    """Who has to act where a flag is set; None where it is read, which does no harm anywhere."""
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
    """The statements among which one stands."""
    around = vars(module.parents[statement]).values()
    return next(each for each in around if isinstance(each, list) and statement in each)


def _is_flag(module: Module, node: ast.expr) -> bool:
    return (module.names.qualified(node) or "") in FLAGS


def _is_alias_of_module(module: Module, parent: ast.AST, node: ast.expr) -> bool:
    """Whether a module is only given another name: ``cuda = torch.cuda``."""
    return (
        isinstance(parent, ast.Assign)
        and node is parent.value
        and all(isinstance(target, ast.Name) for target in parent.targets)
        and look_up(module.names.qualified(node) or "") is None
    )


_TYPES = {"{module}.Stream", "{module}.Event"}
_PLACEHOLDERS = {"{module}": "torch.get_device_module(DEVICE)", "{device}": "DEVICE", "{type}": "DEVICE.type"}
