"""``pin_memory_device`` of data loaders."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_LOADERS = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})
_NAME = "pin_memory_device"


class PinMemoryDevice(Rule):
    """``pin_memory_device`` of data loaders, which PyTorch ignores."""

    code = "IM123"
    name = "pin-memory-device"
    summary = "memory is pinned for the accelerator in use without naming it"
    before = 'DataLoader(data, pin_memory=True, pin_memory_device="cuda")'
    after = "DataLoader(data, pin_memory=True)"
    words = (_NAME,)

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the argument; it is dropped where PyTorch's own class takes it."""
        for call in module.of(ast.Call):
            for each in call.keywords:
                if each.arg == _NAME:
                    yield self._argument(module, call, each)

    def _argument(self, module: Module, call: ast.Call, given: ast.keyword) -> Finding:
        if module.names.qualified(call.func) in _LOADERS:
            draft = Draft(module).remove_argument(call, given)
            advice = "is dropped: PyTorch pins for the accelerator in use"
            return self.automatic_change(given, _NAME, "names a device, and is ignored", advice, draft)
        message, advice = "may be passed to a DataLoader, which ignores it", "drop it if it is"
        return self.undecided(module, given, _NAME, message, advice)
