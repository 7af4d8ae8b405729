"""The base class of rules. A rule finds an idiom in a module, decides how it ends, and carries the edits."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from isthmus_migrate.rules import mocks
from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.probes import enclosing_probe
from isthmus_migrate.source import versions
from isthmus_migrate.source.cuda_assignments import depends
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.regions import region
from isthmus_migrate.source.verdicts import place_of

_LIBRARIES = ("hccl", "mccl", "ncclx", "rccl")  # libraries of collectives, each for one kind of device


class Rule(ABC):
    """A rule. A subclass sets the class attributes and yields findings in :meth:`find`.

    A rule of another package is named by an entry point of the group ``isthmus_migrate.rules``.

    Attributes:
        code: stable identifier, ``"IM101"``.
        name: short name in words, ``"tensor-cuda"``.
        summary: effect and reason, in one line.
        before: example of a line that it changes.
        after: the line after the change.
        words: a source with none of them is not searched.
        option: option of `isthmus migrate convert` that enables the rule's changes; "" if always enabled.
        anywhere: whether it also changes files that do not use PyTorch.
        is_stage: whether it changes a source as a whole; the other rules then see the result.
        order: rules with a lower order come first; a later rule sees their findings in ``module.findings``.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    summary: ClassVar[str]
    before: ClassVar[str]
    after: ClassVar[str]
    words: ClassVar[tuple[str, ...]]
    option: ClassVar[str] = ""
    order: ClassVar[int] = 50
    anywhere: ClassVar[bool] = False
    is_stage: ClassVar[bool] = False

    @abstractmethod
    def find(self, module: Module) -> Iterator[Finding]:
        """Yield the findings of a module.

        They are made by :meth:`automatic_change`, :meth:`needs_manual_change`, :meth:`undecided` and
        :meth:`already_portable`.
        """

    @classmethod
    def as_dict(cls) -> dict[str, str]:
        """Return the rule's public attributes for JSON."""
        return {name: getattr(cls, name) for name in ("code", "name", "option", "summary", "before", "after")}

    def automatic_change(
        self, node: ast.AST, subject: str, message: str, advice: str, draft: Draft, evidence: str = ""
    ) -> Finding:
        """Return a finding that is converted.

        Args:
            node: where it is.
            subject: the name it is about, ``"torch.cuda.synchronize"``.
            message: what was found, a predicate.
            advice: what it becomes.
            draft: the edits.
            evidence: what shows that the change is right, beyond the text of the place itself.

        It stays in code for CUDA only. It is left in a file that does not use PyTorch; in code that TorchScript
        compiles, if it needs the device; in an f-string whose parts have no certain position; in a test whose mocks
        expect the same name; and if the PyTorch of the request lacks what it becomes.
        """
        module = draft.module
        if found := region(module, node):
            return self.already_portable(module, node, subject, f"{message}, {found.why}", "stays")
        if held := self._mock_test_finding(module, node):
            return held
        if not (self.anywhere or module.around.flow.uses_torch):
            shown = f" ({evidence})" if evidence else ""
            why = f"{message}{shown}, in a file that does not use PyTorch"
            remedy = "import torch here, and convert again"
            if not any(each.needs for each in draft.edits):
                remedy = f"write it by hand, as {advice.removeprefix('becomes ')}"
            if subject.startswith('"') and advice.startswith("becomes "):  # a device or backend, as text
                instead = in_words(module, advice.removeprefix("becomes "))
                remedy = f"write None here, and {instead} for None where PyTorch takes it"
            return self.needs_manual_change(module, node, subject, why, remedy)
        if doubt := _doubt(module, node, draft):
            return self.undecided(module, node, subject, *doubt)
        advice = in_words(module, advice)
        older = module.around.torch
        is_for_cuda = versions.is_for_cuda(older, module.around.target)
        if older and (draft.is_empty or (draft.lacking and is_for_cuda)):
            advice = f"stays: PyTorch {versions.format_version(older)} has no other form"
            return self.already_portable(module, node, subject, message, advice)
        if draft.lacking:
            why = f"{message}, but {draft.lacking}"
            return self.needs_manual_change(
                module, node, subject, why, "convert for a newer PyTorch, or write it by hand"
            )
        if draft.is_misplaced or not module.is_placed(node):
            return self.needs_manual_change(
                module, node, subject, f"{message}, inside an f-string", "take it out of the f-string"
            )
        if draft.asks_for_device and module.is_scripted(node):
            why = f"{message}, in code that TorchScript compiles, which cannot use the module's device"
            return self.needs_manual_change(
                module, node, subject, why, "pass the device as an argument, or use that of a tensor"
            )
        place = (node, subject, message, advice)
        evidence = _recorded_evidence(module, node) or evidence
        return module.finding(self.code, Severity.AUTOMATIC, *place, draft.edits, evidence)

    def needs_manual_change(
        self, module: Module, node: ast.AST, subject: str, message: str, advice: str
    ) -> Finding:
        """Return a finding that a person has to convert; ``message`` is the reason, ``advice`` the remedy."""
        return module.finding(self.code, Severity.MANUAL, node, subject, message, advice)

    def undecided(self, module: Module, node: ast.AST, subject: str, message: str, advice: str) -> Finding:
        """Return a finding that is not converted, since the source does not show what it means."""
        held = self._mock_test_finding(module, node)
        return held or module.finding(self.code, Severity.REVIEW, node, subject, message, advice)

    def _mock_test_finding(self, module: Module, node: ast.AST) -> Finding | None:
        """Return the finding of all equal names of a test with mocks, which stay together; None elsewhere."""
        equal = mocks.equals(module, node)
        if not equal:
            return None
        said = "is in a test with mocks" + (f", {len(equal)} times" if len(equal) > 1 else "")
        advice = "stays: change all of them, with what the test replaces and expects, or none"
        place = (equal[0], f'"{equal[0].value!s}"', said, advice)
        return module.finding(self.code, Severity.REVIEW, *place)

    def already_portable(
        self, module: Module, node: ast.AST, subject: str, message: str, advice: str
    ) -> Finding:
        """Return a finding that stays as it is, and is right on every accelerator."""
        evidence = _recorded_evidence(module, node)
        return module.finding(self.code, Severity.NONE, node, subject, message, advice, evidence=evidence)


def _doubt(module: Module, node: ast.AST, draft: Draft) -> tuple[str, str] | None:
    """Return why a change may not mean the same, and the remedy; None if nothing speaks against it."""
    if found := depends(module, node, draft.asks_for_device):
        line = module.place(found.target.lineno)[1]
        return (
            f"depends on {found.name}, which line {line} assigns",
            "convert it together with the assignment",
        )
    if probe := enclosing_probe(module, node, draft):
        line = module.place(probe.lineno)[1]
        said = f"fails without CUDA, which the handler of the `try` in line {line} catches"
        return said, "test for the accelerator, and keep both ways"
    if library := _communicator(module, node):
        return f"is a device for {library!r}", "choose the library of the device in use with it"
    return None


def _communicator(module: Module, node: ast.AST) -> str:
    """Return the library of collectives that a call names beside a device: ``new_comm("mccl", device=d)``."""
    above = module.parents[node]
    call = module.parents[above] if isinstance(above, ast.keyword) else above
    given = call.args if isinstance(call, ast.Call) and node is not call.func else []
    return next(
        (each.value for each in given if isinstance(each, ast.Constant) and each.value in _LIBRARIES), ""
    )


def in_words(module: Module, advice: str) -> str:
    """Return a template, or advice with one, as it is written in messages, for the PyTorch of the request."""
    text, _ = versions.write_template(advice, module.around.torch, module.around.target)
    return text.replace("{module}", "torch.get_device_module(DEVICE)").replace("{type}", "DEVICE.type")


def _recorded_evidence(module: Module, node: ast.AST) -> str:
    """Return what the record of a run says about a node, or ""."""
    return module.around.flow.recorded.get(place_of(node), "") if isinstance(node, ast.expr) else ""


def mentions(text: str, rule: Rule | type[Rule]) -> bool:
    """Whether a text has any of a rule's words."""
    return any(word in text for word in rule.words)


def is_read(node: ast.AST) -> bool:
    """Whether a name or attribute is read."""
    return isinstance(getattr(node, "ctx", None), ast.Load)
