"""Devices that are overwritten before they are used."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.blocks import statements_after
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module


class Overwritten(Rule):
    """Assignments of a device that the next statement replaces."""

    code = "IM106"
    name = "overwritten-device"
    summary = "reports a device that the next line overwrites before it is used; changes nothing"
    before = 'device = torch.device("cuda")\ndevice = torch.device("cpu")'
    after = before
    words = ("device", "cuda")
    order = 90

    def find(self, module: Module) -> Iterator[Finding]:
        """Find assignments that are followed by one to the same name, which does not read it."""
        for first in module.of(ast.Assign):
            second = next(iter(statements_after(module, first)), None)
            if second is not None and _overwrites(first, second) and _is_device(module, first.value):
                name, line = ast.unparse(first.targets[0]), module.place(second.lineno)[1]
                said = f"is set again in line {line} before it is used"
                yield self.undecided(module, first, f"`{name}`", said, "keep the assignment that is meant")


def _overwrites(first: ast.Assign, second: ast.stmt) -> bool:
    """Whether an assignment replaces the name of another one without reading it."""
    if not isinstance(second, ast.Assign) or not isinstance(first.targets[0], ast.Name):
        return False
    is_same = list(map(ast.dump, first.targets)) == list(map(ast.dump, second.targets))
    return is_same and not _names(second.value, first.targets[0].id)


def _names(node: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _is_device(module: Module, node: ast.expr) -> bool:
    """Whether an expression is ``torch.device(...)``, the device constant, or a choice of one."""
    if isinstance(node, ast.IfExp):
        return _is_device(module, node.body) or _is_device(module, node.orelse)
    if isinstance(node, ast.Call):
        return module.names.qualified(node.func) == "torch.device"
    return isinstance(node, ast.Name) and node.id == module.device
