"""Base class of rules for CUDA names that no rule converts: a person ports what uses them."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.functions import needs_guard
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.cuda_names import CudaName, Guard, canonical, look_up
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module

_PRINTS = frozenset({"print", "str", "repr"})


class StaysRule(Rule):
    """A rule whose findings are the table's entries with its code, which have no replacement."""

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the names; in ``torch.cuda.nccl.version`` it is ``torch.cuda.nccl``."""
        for node, name in whole_names(module):
            known = longest_known_prefix(name)
            entry = look_up(known)
            if entry is not None and entry.code == self.code:
                yield self.name_read(module, node, canonical(known), entry)

    def name_read(self, module: Module, node: ast.expr, name: str, entry: CudaName) -> Finding:
        """Return the finding of a name that is read."""
        if not needs_guard(module, node, Guard.CUDA):
            return self.already_portable(module, node, name, "is used on CUDA only", "stays")
        if entry.severity is Severity.NONE:
            return self.already_portable(
                module, node, name, "chooses among kernels for attention", entry.advice
            )
        said = "belongs to CUDA" if "cuda" in name else "is not on every accelerator"
        if entry.severity is Severity.MANUAL:
            return self.needs_manual_change(module, node, name, said, entry.advice)
        if name == "torch.version.cuda" and _is_printed(module, node):
            return self.already_portable(
                module, node, name, "is printed", "stays: it is None in a PyTorch without CUDA"
            )
        return self.undecided(module, node, name, said, entry.advice)


def whole_names(module: Module) -> Iterator[tuple[ast.expr, str]]:
    """Yield names of PyTorch with all their attributes, without aliases, which count where they are used."""
    for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
        name = module.names.qualified(node) or ""
        parent = module.parents[node]
        if (
            not name.startswith("torch.")
            or isinstance(parent, ast.Attribute)
            or module.names.is_variable(node)
        ):
            continue
        if isinstance(getattr(node, "ctx", None), ast.Load):
            yield node, name


def longest_known_prefix(name: str) -> str:
    """Return the longest prefix of a dotted name that the table has; "" if there is none."""
    while name and look_up(name) is None:
        name = name.rpartition(".")[0]
    return name


def _is_printed(module: Module, node: ast.expr) -> bool:
    """Whether a value only becomes text."""
    parent = module.parents[node]
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id in _PRINTS
    return isinstance(parent, ast.FormattedValue)
