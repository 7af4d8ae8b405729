"""``apex.amp`` becomes ``torch.amp``."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.rule import is_read
from isthmus_migrate.rules.scripts import apex_amp
from isthmus_migrate.rules.scripts.program import NotRecognised
from isthmus_migrate.rules.source_rule import WholeRule
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_ADVICE = "use torch.autocast and torch.amp.GradScaler by hand; apex.amp was not changed"


class ApexAmp(WholeRule):
    """Mixed precision by apex; converted in the whole file or not at all."""

    code = "IM230"
    name = "apex-amp"
    summary = "apex.amp becomes torch.autocast and torch.amp.GradScaler; O2 keeps its weights in float32"
    before = "with amp.scale_loss(loss, optimizer) as scaled_loss: scaled_loss.backward()"
    after = "scaler.scale(loss).backward()"
    words = ("apex",)
    order = 5

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the uses of apex.amp: changed together, or left for one reason."""
        try:
            changes = apex_amp.convert(module.text, module.torch, module.device)
        except NotRecognised as error:
            yield self.needs_manual_change(module, module.at(error.line), "apex.amp", str(error), _ADVICE)
            return
        if changes:
            yield from self.findings_of_changes(
                module, changes, "apex.amp", "has a counterpart in torch.amp", ("torch", "device")
            )
            return
        for node in module.of(ast.Name):  # from apex.amp import initialize
            name = module.names.qualified(node) or ""
            if name.startswith("apex.amp.") and is_read(node):
                yield self.needs_manual_change(module, node, name, "is imported by its name", _ADVICE)
