"""``apex.amp`` becomes ``torch.amp``."""

import libcst as cst

from isthmus.migrate.convert import apex_amp
from isthmus.migrate.convert.program import NotRecognised
from isthmus.migrate.convert.rule import Change, Rule
from isthmus.migrate.source.findings import Finding, Severity

_ADVICE = "use torch.autocast and torch.amp.GradScaler by hand; apex.amp was not changed"


class ApexAmp(Rule):
    """Mixed precision by apex; converted in the whole file or not at all."""

    code = "IM230"
    name = "apex-amp"
    severity = Severity.REVIEW
    summary = "apex.amp becomes torch.autocast and torch.amp.GradScaler; O2 keeps its weights in float32"
    before = "with amp.scale_loss(loss, optimizer) as scaled_loss: scaled_loss.backward()"
    after = "scaler.scale(loss).backward()"
    words = ("apex",)
    order = 5

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        """Convert the whole source."""
        try:
            converted = apex_amp.convert(updated_node.code, self.context.torch, self.context.device)
        except NotRecognised as error:
            self._leave(error)
            return updated_node
        if converted is None:
            return updated_node
        self.device()
        self.context.needs_torch = True
        self.context.converted |= {"amp", "apex"}
        self.context.changes += [
            Change(self.code, self.context.path, edit.line, edit.line, edit.message)
            for edit in converted.edits
        ]
        return cst.parse_module(converted.source, updated_node.config_for_parsing)

    def _leave(self, error: NotRecognised) -> None:
        place = (self.context.path, error.line, error.line)
        self.context.findings.append(
            Finding(self.code, Severity.MANUAL, *place, "apex.amp", str(error), _ADVICE)
        )
