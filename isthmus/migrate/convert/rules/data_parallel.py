"""Training on one device, or by DataParallel, becomes DistributedDataParallel."""

import re

import libcst as cst

from isthmus.migrate.convert.ddp.plan import plan
from isthmus.migrate.convert.program import NotRecognised
from isthmus.migrate.convert.rule import Change, Rule
from isthmus.migrate.source.findings import Finding, Severity

_OPTION = "`--ddp` makes it DistributedDataParallel, for any accelerator"
_DATA_PARALLEL = re.compile(r"\bDataParallel\b")
_ADVICE = "change the script to DistributedDataParallel by hand; its training was not changed"


class DataParallel(Rule):
    """Training on one device or by DataParallel; converted as a whole or not at all."""

    code = "IM210"
    name = "data-parallel"
    severity = Severity.REVIEW
    summary = (
        "training in one process becomes DistributedDataParallel: run it by torchrun, on one rank or many"
    )
    before = "model = nn.DataParallel(model)"
    after = "model = torch.nn.parallel.DistributedDataParallel(model)"
    words = ("backward", "DataParallel")
    order = 10
    option = "ddp"

    def is_needed(self) -> bool:
        """Whether the file mentions DataParallel, or the option is given."""
        return self.is_on() or _DATA_PARALLEL.search(self.context.source) is not None

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """Report DataParallel if the option is not given."""
        names = () if self.is_on() else self.qualified(original_node.func)
        if any(name.startswith("torch.nn.") and name.endswith(".DataParallel") for name in names):
            self.left(original_node, "torch.nn.DataParallel", "stays, and is for CUDA only", _OPTION)
        return updated_node

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        """Plan the change on the whole source."""
        if not self.is_on():
            return updated_node
        try:
            planned = plan(updated_node.code, self.context.device)
        except NotRecognised as error:
            self._find(Severity.MANUAL, error.line, "DistributedDataParallel", str(error), _ADVICE)
            return updated_node
        if planned is None:
            return updated_node
        self.device()
        self.context.needs_torch = True
        self.context.imports.add("os")
        self.context.changes += [
            Change(self.code, self.context.path, edit.line, edit.line, edit.message) for edit in planned.edits
        ]
        for each in planned.advice:
            self._find(Severity.REVIEW, *each)
        return cst.parse_module(planned.source, updated_node.config_for_parsing)

    def _find(self, severity: Severity, line: int, subject: str, message: str, advice: str) -> None:
        self.context.findings.append(
            Finding(self.code, severity, self.context.path, line, line, subject, message, advice)
        )
