"""Names of PyTorch's CUDA API, from the table that the conversion reads too."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from isthmus.migrate.analyse.module import Module
from isthmus.migrate.analyse.strings import claimed, is_on_cuda_only, is_word, text
from isthmus.migrate.cuda_names import FLAGS, Guard, canonical, look_up
from isthmus.migrate.findings import Finding, Severity


def detect(module: Module) -> Iterator[Finding]:
    """Uses of torch.cuda.*, torch.backends.cud* (IM1xx); a name of torch.cuda that the table lacks is IM199."""
    if not module.mentions("cuda", "cudnn", "autocast"):
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
        yield from _imported(module, plain, [alias.name for alias in plain.names if alias.asname])
    for origin in module.of(ast.ImportFrom):
        if origin.module and not origin.level:
            yield from _imported(module, origin, [f"{origin.module}.{alias.name}" for alias in origin.names])


def _imported(module: Module, node: ast.stmt, names: list[str]) -> Iterator[Finding]:
    cuda = [name for name in names if name == "torch.cuda" or name.startswith("torch.cuda.")]
    if cuda:
        amp = cuda[0].startswith("torch.cuda.amp")
        code, advice = (
            ("IM131", "becomes torch.amp") if amp else ("IM130", "goes when its uses are converted")
        )
        yield module.finding(code, Severity.AUTOMATIC, node, cuda[0], "is imported", advice)


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
            severity = _severity_of_flag(module, node) if part in FLAGS else entry.severity
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


def _severity_of_flag(module: Module, node: ast.expr) -> Severity | None:
    """Who has to act where a flag is set; None where it is read, which does no harm anywhere."""
    if not isinstance(getattr(node, "ctx", None), ast.Store):
        return None
    parent = module.parents[node]
    alone = isinstance(parent, ast.Assign) and parent.targets == [node]
    return Severity.AUTOMATIC if alone else Severity.REVIEW


def _is_alias_of_module(module: Module, parent: ast.AST, node: ast.expr) -> bool:
    """Whether a module is only given another name: ``cuda = torch.cuda``."""
    return (
        isinstance(parent, ast.Assign)
        and node is parent.value
        and all(isinstance(target, ast.Name) for target in parent.targets)
        and look_up(module.names.qualified(node) or "") is None
    )


_PLACEHOLDERS = {"{module}": "torch.get_device_module(DEVICE)", "{device}": "DEVICE", "{type}": "DEVICE.type"}
