"""Convert one source: apply the edits of its findings, and add the device constant and imports."""

import ast
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from isthmus_migrate.convert import stages
from isthmus_migrate.convert.definitions import definitions
from isthmus_migrate.convert.guards import guards
from isthmus_migrate.flow.study import Request, surroundings_of_module
from isthmus_migrate.rules import registry
from isthmus_migrate.rules.examine import edits_of, examine
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source import constants, edits
from isthmus_migrate.source.files import Kind, Source
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.parse import parse, too_deep


class Result(NamedTuple):
    """Result of converting a source.

    Attributes:
        text: the new text.
        findings: what was found, with the end of each.
    """

    text: str
    findings: Sequence[Finding]

    @property
    def changes(self) -> list[Finding]:
        """The findings that were converted."""
        return [each for each in self.findings if each.edits]


def convert_source(
    text: str,
    path: str,
    target: str = "",
    rules: Sequence[type[Rule]] | None = None,
    options: Collection[str] = (),
    torch: tuple[int, ...] = (),
) -> Result:
    """Convert a source that is a project of its own.

    Args:
        text: text of the source, with its original line ends.
        path: path for the log.
        target: a device type, or "" for any accelerator.
        rules: only these, in this order; None for all.
        options: options that enable rules, ``"ddp"``.
        torch: oldest version of PyTorch that the result has to run on; () for any.

    Returns:
        The result; the unchanged source with a finding if it does not parse, or is nested too deeply.
    """
    source = Source(Path(path), path, Kind.PYTHON, text.encode(errors="surrogatepass"), text, "utf-8")
    module, problems = parse(source)
    if module is None:
        return Result(text, problems)
    try:
        module.around = surroundings_of_module(module, Request(target, frozenset(options), torch=torch))
        result = convert_module(module, registry.all_rules() if rules is None else rules)
    except RecursionError:
        return Result(text, [too_deep(path)])
    return result._replace(text=text.removesuffix(module.text) + result.text)


def convert_module(module: Module, rules: Sequence[type[Rule]]) -> Result:
    """Convert a module; it stays as it is if the result would not compile, or could not define its device."""
    staged = stages.run(module, rules)
    original, module = module.text, staged.module
    findings = [*staged.findings, *examine(module, [each for each in rules if not each.is_stage])]
    findings.sort(key=lambda each: (each.line, each.column, each.code))
    wanted = [*edits_of(module.findings), *staged.needs]
    if not wanted:
        return Result(original, findings)
    needs = frozenset().union(*(each.needs for each in wanted))
    if needs & {"torch", "device"} and constants.is_torch_optional(module.tree):
        why = "PyTorch is imported under an `if` or `try` only: the module cannot define its device"
        advice = "import torch at the top of the file, and convert again"
        return Result(original, [_as_left(each, why, advice) for each in findings])
    new = edits.apply(module.text, [*wanted, *guards(module, wanted), *definitions(module, wanted)])
    if not _compiles(new):
        why = "the conversion would not compile"
        return Result(original, [_as_left(each, why, "please report it") for each in findings])
    return Result(new, findings)


def _as_left(finding: Finding, why: str, advice: str) -> Finding:
    """Return a change that is not made as a finding that is left."""
    if not finding.edits:
        return finding
    return finding._replace(
        severity=Severity.MANUAL, message=f"{finding.message}; {why}", advice=advice, edits=()
    )


def _compiles(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True
