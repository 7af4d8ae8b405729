"""Remove imports of CUDA names that other rules replaced."""

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules.amp_uses import is_movable
from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.functions import is_type
from isthmus_migrate.rules.profiler import ACTIVITIES
from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source.edits import Edit
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

Imports = ast.Import | ast.ImportFrom


class CudaImports(Rule):
    """Imports of names that are no longer used."""

    code = "IM130"
    name = "cuda-imports"
    summary = "drops imports of CUDA names whose uses were all replaced"
    before = "from torch.cuda import synchronize"
    after = ""
    words = ("from torch.cuda", "from torch import", "import torch.cuda", "ProfilerActivity")
    order = 95

    def find(self, module: Module) -> Iterator[Finding]:
        """Find imports of CUDA names; a name is dropped if edits of other rules replace every use of it."""
        edits = [
            each
            for found in module.findings
            for each in found.edits
            if each.end > each.start and not each.guard
        ]
        imports: list[Imports] = [*module.of(ast.Import), *module.of(ast.ImportFrom)]
        unused = {
            node: [each for each in _of_cuda(node) if _is_replaced(module, each, edits)] for node in imports
        }
        gone = {node for node in imports if len(unused[node]) == len(node.names)}
        for node in imports:
            if not is_movable(module, node):
                yield from self._import(module, node, unused[node], gone)

    def _import(
        self, module: Module, node: Imports, unused: list[ast.alias], gone: set[Imports]
    ) -> Iterator[Finding]:
        """Yield the findings of the CUDA names of an import."""
        if unused:
            draft = Draft(module)
            if node in gone:
                _drop_statement(draft, node, gone)
            else:
                _drop_names(draft, node, unused)
            names = ", ".join(_origin(node, each) for each in unused)
            yield self.automatic_change(node, names, "is imported", "is dropped: it is no longer used", draft)
        for each in _of_cuda(node):
            name = _origin(node, each)
            if each.name == "*":
                yield self.needs_manual_change(
                    module, node, name, "is imported", "import its names individually, then convert"
                )
            elif each not in unused:
                yield self.already_portable(
                    module, node, name, "is imported", "stays: the import needs no CUDA"
                )


def _origin(node: Imports, alias: ast.alias) -> str:
    return alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"


def _of_cuda(node: Imports) -> list[ast.alias]:
    """Return what an import names of ``torch.cuda``, and the profiler's activities."""
    if isinstance(node, ast.ImportFrom) and node.level:
        return []
    named = ((each, _origin(node, each)) for each in node.names)
    return [each for each, name in named if f"{name}.".startswith("torch.cuda.") or name in ACTIVITIES]


def _is_replaced(module: Module, alias: ast.alias, edits: list[Edit]) -> bool:
    """Whether an imported name is used, and edits replace every use; ``import torch.cuda`` binds ``torch``."""
    if alias.asname is None and alias.name.startswith("torch."):
        return False
    name = (alias.asname or alias.name).partition(".")[0]
    uses = [each for each in module.of(ast.Name) if each.id == name and is_read(each)]
    if not uses or module.is_shared(name) or _is_named(module, name):
        return False
    return all(any(_replaces(module, edit, use) for edit in edits) for use in uses)


def _replaces(module: Module, edit: Edit, use: ast.Name) -> bool:
    covers = edit.start <= module.start(use) and module.end(use) <= edit.end
    return covers and not re.search(rf"(?<![\w.\"']){use.id}\b(?!\s*=[^=])", edit.text)


def _is_named(module: Module, name: str) -> bool:
    """Whether a string names a variable: in ``__all__``, or as an annotation."""
    named = (each for each in module.of(ast.Constant) if text(each) == name)
    return any(is_type(module, each) or _is_exported(module, each) for each in named)


def _is_exported(module: Module, node: ast.Constant) -> bool:
    assigned = (each for each in module.enclosing(node) if isinstance(each, ast.Assign | ast.AugAssign))
    targets = (each.targets[0] if isinstance(each, ast.Assign) else each.target for each in assigned)
    return any(isinstance(each, ast.Name) and each.id == "__all__" for each in targets)


def _drop_statement(draft: Draft, node: Imports, gone: set[Imports]) -> None:
    """Remove a statement with its line; comments above it stay, and a block does not become empty."""
    module = draft.module
    start, end = module.start(node), module.end(node)
    block = next(
        each for each in vars(module.parents[node]).values() if isinstance(each, list) and node in each
    )
    line, next_line = module.line_start(node.lineno), module.line_start((node.end_lineno or 0) + 1)
    before, after = module.text[line:start], module.text[end:next_line]
    is_last = node is block[0] and all(each in gone for each in block)
    if is_last and not isinstance(module.parents[node], ast.Module):
        draft.swap(node, start, end, "pass")
    elif not before.strip() and not after.strip():
        draft.swap(node, line, next_line, "")
    elif after.lstrip().startswith(";"):
        rest = after.lstrip()[1:]
        draft.swap(node, start, next_line - len(rest.lstrip()) if rest.strip() else end, "")
    elif before.rstrip().endswith(";"):
        draft.swap(node, line + before.rindex(";"), end, "")
    elif after.strip().startswith("#") and not before.strip():
        draft.swap(node, line, next_line, "")
    else:
        draft.swap(node, start, end, "pass")


def _drop_names(draft: Draft, node: Imports, unused: list[ast.alias]) -> None:
    """Remove names of an import, each with one comma."""
    module, kept = draft.module, [each for each in node.names if each not in unused]
    for each in unused:
        later = [other for other in node.names[node.names.index(each) + 1 :] if other in kept]
        if later:
            following = node.names[node.names.index(each) + 1]
            draft.swap(node, module.start(each), module.start(following), "")
        else:
            before = node.names[node.names.index(each) - 1]
            draft.swap(node, module.end(before), module.end(each), "")
