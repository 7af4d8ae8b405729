"""Convert one source: apply the rules in order, then add the device constant and imports."""

import ast
import difflib
import functools
import itertools
import re
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import NamedTuple, TypeVar

import libcst as cst
from libcst.metadata import MetadataWrapper

from isthmus.migrate.convert import definitions, registry, visible_devices
from isthmus.migrate.convert.rule import ALONE, Change, Context, Project, Rule
from isthmus.migrate.convert.walk import Walk
from isthmus.migrate.source.findings import Finding, Severity

SYNTAX_ERROR = "IM001"
Placed = TypeVar("Placed", Change, Finding)
BYTE_ORDER_MARK = "\ufeff"


class Result(NamedTuple):
    """Result of converting a source.

    Attributes:
        text: the new text.
        changes: the changes, in line order.
        findings: reasons for what was not converted.
    """

    text: str
    changes: Sequence[Change]
    findings: Sequence[Finding] = ()


def convert_source(
    text: str,
    path: str,
    target: str = "",
    rules: Sequence[type[Rule]] | None = None,
    options: Collection[str] = (),
    project: Project = ALONE,
) -> Result:
    """Convert one source.

    Args:
        text: text of the source, with its original line ends.
        path: path for the log.
        target: a device type, or "" for any accelerator.
        rules: only these, in this order; None for all.
        options: options that enable rules, ``"ddp"``.
        project: facts about the project's other sources.

    Returns:
        The result; the unchanged source with a finding if it does not parse.
    """
    rules = registry.all_rules() if rules is None else rules
    context = Context(path, target, text.removeprefix(BYTE_ORDER_MARK), options, project)
    result = _converted(text, context, rules)
    if target:
        return result
    late = _in_the_original(list(visible_devices.too_late(result.text, path)), text, result.text)
    return result._replace(findings=[*result.findings, *late])


def _converted(text: str, context: Context, rules: Sequence[type[Rule]]) -> Result:
    wanted = _with_words(rules, text)
    if not wanted:
        return Result(text, [])
    path, body = context.path, context.source
    try:
        module = cst.parse_module(body)
    except cst.ParserSyntaxError as error:
        return _left(text, path, error.raw_line, "does not parse as Python 3")
    except UnicodeError:
        return _left(text, path, 0, "contains a lone surrogate")
    except RecursionError:
        return _left(text, path, 0, "nested too deeply")
    try:
        if module.code != body:
            return _left(text, path, 0, "the parser does not preserve every byte")
        new, changes, findings = _convert(module, context, wanted)
    except RecursionError:
        return _left(text, path, 0, "nested too deeply")
    if not changes:
        return Result(text, [], findings)
    if _compiles(body) and not _compiles(new):
        return _left(text, path, 0, "the conversion would not compile; please report it")
    return Result(text.removesuffix(body) + new, changes, findings)


def _with_words(rules: Sequence[type[Rule]], text: str) -> list[type[Rule]]:
    return [rule for rule in rules if rule.mention in text and _words(rule.words).search(text)]


@functools.cache
def _words(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, words)))


def _convert(module: cst.Module, context: Context, rules: Sequence[type[Rule]]) -> Result:
    code = text = context.source
    for _, group in itertools.groupby(rules, key=lambda rule: rule.order):
        needed = [rule for rule in (each(context) for each in group) if rule.is_needed()]
        if not needed:
            continue
        before, left = len(context.changes), len(context.findings)
        walked = _walk(module, context, needed)
        context.findings[left:] = _in_the_original(context.findings[left:], text, code)
        if len(context.changes) > before:
            context.changes[before:] = _in_the_original(context.changes[before:], text, code)
            code = walked.code
            module = cst.parse_module(code)
    if context.changes:
        if (context.needs_torch or context.needs_device) and definitions.is_torch_optional(module):
            return Result(context.source, [], [_optional_torch(context.changes[0])])
        code = definitions.add_to(module, context).code
    changes = sorted(context.changes, key=lambda change: (change.line, change.code))
    return Result(code, changes, context.findings)


def _walk(module: cst.Module, context: Context, rules: Sequence[Rule]) -> cst.Module:
    """Walk the module once; its nodes are unique, so metadata needs no copy."""
    context.claimed.clear()
    context.lines.clear()
    context.names.clear()
    definitions.look_for(module, context)
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    with ExitStack() as stack:
        for rule in rules:
            stack.enter_context(rule.resolve(wrapper))
        return wrapper.module.visit(Walk(context, rules))


def _in_the_original(placed: Sequence[Placed], text: str, code: str) -> Sequence[Placed]:
    """Return a walk's changes or findings with line numbers of the original source."""
    if code == text or not placed:
        return placed
    lines = _line_map(text, code)
    return [each._replace(line=lines[each.line - 1], end_line=lines[each.end_line - 1]) for each in placed]


def _line_map(text: str, code: str) -> list[int]:
    """Return for each line of the code its line in the original text."""
    old, new = text.splitlines(), code.splitlines()
    lines: list[int] = []
    for _, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        last = max(start, end - 1)
        lines += [min(start + offset, last) + 1 for offset in range(new_end - new_start)]
    return [*lines, len(old)]


def _compiles(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _optional_torch(change: Change) -> Finding:
    why = "PyTorch is imported under an `if` or `try` only: the module cannot define its device"
    advice = "import torch at the top of the file, and convert again"
    place = (change.path, change.line, change.end_line)
    return Finding(change.code, Severity.MANUAL, *place, "import torch", why, advice)


def _left(text: str, path: str, line: int, why: str) -> Result:
    advice = "fix the source, or exclude it"
    finding = Finding(SYNTAX_ERROR, Severity.MANUAL, path, line, line, path, why, advice)
    return Result(text, [], [finding])
