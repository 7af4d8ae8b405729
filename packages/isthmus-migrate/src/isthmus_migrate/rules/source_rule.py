"""Base class of rules that change a source as a whole, or leave it with the reason."""

from collections.abc import Iterable, Iterator
from typing import ClassVar

from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.rules.scripts.edits import Change
from isthmus_migrate.source import versions
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module


class WholeRule(Rule):
    """A rule that plans the change of a whole source."""

    is_stage: ClassVar[bool] = True

    def findings_of_changes(
        self, module: Module, changes: Iterable[Change], subject: str, message: str, needs: Iterable[str]
    ) -> Iterator[Finding]:
        """Yield the findings of planned changes.

        Args:
            module: the module.
            changes: the changes.
            subject: what they are about.
            message: what was found, a predicate.
            needs: what their text uses, see :class:`isthmus_migrate.source.edits.Edit`.
        """
        changes = list(changes)
        texts = "".join(each.text for change in changes for each in change.edits)
        if changes and (
            why := versions.find_missing(texts.replace(f"{module.torch}.", "torch."), module.around.torch)
        ):
            remedy = "convert for a newer PyTorch, or write it by hand"
            yield self.needs_manual_change(
                module, module.at(changes[0].line), subject, f"{message}, but {why}", remedy
            )
            return
        for change in changes:
            edits = [each._replace(needs=frozenset(needs)) for each in change.edits]
            place = (module.at(change.line), subject, message, change.message)
            yield module.finding(self.code, Severity.AUTOMATIC, *place, edits)
