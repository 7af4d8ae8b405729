"""Tests that replace a function of ``torch.cuda``, which the converted code no longer calls."""

import ast
import re
from collections.abc import Iterator

from isthmus.migrate.rules.functions import shown
from isthmus.migrate.rules.rule import Rule
from isthmus.migrate.source.calls import text
from isthmus.migrate.source.cuda_names import CudaName, Guard, canonical, look_up
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module

_PATCHES = frozenset({"object", "patch", "setattr", "spy"})  # of unittest.mock, pytest and pytest-mock
_TARGET = re.compile(r"(?:\w+\.)*?(torch\.cuda\.\w+(?:\.\w+)*)")
_AVAILABLE = "torch.cuda.is_available"


class PatchedNames(Rule):
    """Names of ``torch.cuda`` that tests patch, by string or as an attribute of the module."""

    code = "IM136"
    name = "patched-names"
    summary = "tests that patch a name of torch.cuda which the converted code no longer calls are listed"
    before = 'monkeypatch.setattr(torch.cuda, "is_available", lambda: True)'
    after = before
    words = ("patch", "mocker")
    order = 45

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the calls that patch."""
        for call in module.of(ast.Call):
            name = _patched(module, call)
            entry = look_up(name)
            if entry is not None:
                module.claimed.update(ast.walk(call.args[0]))
                yield self._patch(module, call, canonical(name), entry)

    def _patch(self, module: Module, call: ast.Call, name: str, entry: CudaName) -> Finding:
        """Return the finding of a patch of a name."""
        if name not in module.around.cuda_names:
            return self.right(module, call, name, "is patched, and no file of the project uses it", "stays")
        if entry.guard is Guard.CUDA or (entry.severity is not Severity.AUTOMATIC and not entry.becomes):
            return self.right(module, call, name, "is patched, and the converted code still uses it", "stays")
        message = "is patched by a test, which has no effect on the converted code"
        return self.unclear(module, call, name, message, _remedy(name, entry))


def _patched(module: Module, call: ast.Call) -> str:
    """Return the dotted name that a call patches; "" for any other call."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if function not in _PATCHES or not call.args:
        return ""
    target = _TARGET.fullmatch(text(call.args[0]))
    if target is not None:
        return target[1]
    owner = module.names.qualified(call.args[0]) or ""
    return f"{owner}.{text(call.args[1])}" if len(call.args) > 1 and owner.startswith("torch.cuda") else ""


def _remedy(name: str, entry: CudaName) -> str:
    """Return what to patch instead."""
    if name == _AVAILABLE:
        return "patch torch.accelerator.is_available, and DEVICE of the module under test"
    if entry.becomes.startswith("{module}"):
        return "patch torch.get_device_module in place of torch.cuda"
    if entry.becomes:
        return f"patch {shown(entry.becomes)}"
    return f"patch the name that the converted code calls: it {entry.advice}"
