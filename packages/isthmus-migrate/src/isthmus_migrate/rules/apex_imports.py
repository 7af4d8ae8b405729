"""Imports of apex that nothing uses once their uses are converted."""

import ast
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.functions import is_alone
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.constants import gives_up
from isthmus_migrate.source.edits import Edit
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_Import: TypeAlias = ast.Import | ast.ImportFrom


class ApexImports(Rule):
    """Imports of apex, which is for CUDA only."""

    code = "IM233"
    name = "apex-imports"
    summary = "imports of apex that nothing uses are removed: apex is for CUDA only"
    before = "from apex.optimizers import FusedAdam"
    after = ""
    words = ("apex",)
    order = 80  # after the rules that convert its uses

    def find(self, module: Module) -> Iterator[Finding]:
        """Find imported names without a use that stays."""
        edits = [edit for finding in module.findings for edit in finding.edits]
        statements: list[_Import] = [*module.of(ast.Import), *module.of(ast.ImportFrom)]
        unused = {
            statement: [each for each in statement.names if not _is_used(module, each, edits)]
            for statement in statements
            if all(_is_apex(statement, each) for each in statement.names)
        }
        gone = {each for each, names in unused.items() if len(names) == len(each.names)}
        for statement, names in unused.items():
            draft = _remove_names(module, statement, names, gone) if names else None
            if draft is not None:
                subject = ", ".join(_origin(statement, each) for each in names)
                yield self.automatic_change(
                    statement, subject, "is for CUDA only, and has no use", "is removed", draft
                )


def _origin(statement: _Import, alias: ast.alias) -> str:
    return alias.name if isinstance(statement, ast.Import) else f"{statement.module}.{alias.name}"


def _is_apex(statement: _Import, alias: ast.alias) -> bool:
    if isinstance(statement, ast.Import):
        return alias.name.partition(".")[0] == "apex"
    return statement.level == 0 and (statement.module or "").partition(".")[0] == "apex" and alias.name != "*"


def _is_used(module: Module, alias: ast.alias, edits: Collection[Edit]) -> bool:
    """Whether a use of an imported name stays."""
    name = alias.asname or alias.name.partition(".")[0]
    if name in _exported_names(module) or module.is_shared(name):
        return True
    uses = (module.start(each) for each in module.of(ast.Name) if each.id == name)
    return any(not any(edit.start <= use < edit.end for edit in edits) for use in uses)


def _exported_names(module: Module) -> set[object]:
    """Return the names in the module's ``__all__``."""
    lists = (each.value for each in module.of(ast.Assign) if "__all__" in map(ast.unparse, each.targets))
    return {each.value for value in lists for each in ast.walk(value) if isinstance(each, ast.Constant)}


def _remove_names(
    module: Module, statement: _Import, names: list[ast.alias], gone: AbstractSet[ast.stmt]
) -> Draft | None:
    """Return the removal of imported names; None where the script goes on without the import."""
    draft = Draft(module)
    parent = module.parents[statement]
    if isinstance(parent, ast.Try) and not all(map(gives_up, parent.handlers)):
        return None
    if statement not in gone:
        return draft.remove_items(statement.names, names)
    if isinstance(parent, ast.Try) and gone >= set(parent.body) and not (parent.orelse or parent.finalbody):
        return _delete_statement(draft, parent)
    body = getattr(parent, "body", [])
    is_only = statement in body and not isinstance(parent, ast.Module) and gone >= set(body)
    if is_only or not is_alone(module, statement):
        return draft.swap(statement, module.start(statement), module.end(statement), "pass")
    return _delete_statement(draft, statement)


def _delete_statement(draft: Draft, statement: ast.stmt) -> Draft:
    """Remove the lines of a statement."""
    start = draft.module.line_start(statement.lineno)
    end = draft.module.line_start((statement.end_lineno or statement.lineno) + 1)
    return draft.swap(statement, start, end, "")
