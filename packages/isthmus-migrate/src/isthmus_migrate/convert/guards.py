"""Guards: an ``if`` around statements that apply only to some devices."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from isthmus_migrate.source.edits import Edit
from isthmus_migrate.source.module import Module

_STEP = re.compile(r"\t| {1,8}")  # an indentation of more is an alignment


def guards(module: Module, edits: Sequence[Edit]) -> Iterator[Edit]:
    """Yield the edits that put statements under their guards; adjacent ones with the same guard share an ``if``.

    Args:
        module: the module.
        edits: its edits; those with a guard are the statements.
    """
    text = module.text
    wanted = sorted((edit for edit in edits if edit.guard), key=lambda edit: edit.start)
    if not wanted:
        return
    newline = "\r\n" if "\r\n" in text else "\n"
    steps = _steps(module)
    unit = next(iter(steps.values()), " " * 4)
    before: Edit | None = None
    for edit in wanted:
        line = text.rindex("\n", 0, edit.start) + 1 if "\n" in text[: edit.start] else 0
        indent = text[line : edit.start]
        step = steps.get(edit.start, unit)
        if before is not None and _is_adjacent(text, before, edit):
            yield Edit(line, line, step)
        else:
            head = f"if {edit.guard}:{newline}{indent}{step}"
            yield Edit(edit.start, edit.start, head, span=edit.start - edit.end - 1)
        for inner in re.finditer("\n", text[edit.start : edit.end]):
            offset = edit.start + inner.end()
            yield Edit(offset, offset, step)
        before = edit


def _is_adjacent(text: str, before: Edit, edit: Edit) -> bool:
    """Whether a statement is on the line after another one, in the same block, with the same guard."""
    between = text[before.end : edit.start]
    indent = text[: before.start].rpartition("\n")[2]
    return before.guard == edit.guard and between.count("\n") == 1 and between.rpartition("\n")[2] == indent


def _steps(module: Module) -> Mapping[int, str]:
    """Return, by the offset of each indented statement, what indents it beyond the statement around its block."""
    steps: dict[int, str] = {}
    for statement, above in module.parents.items():
        if isinstance(statement, ast.stmt) and isinstance(above, ast.stmt | ast.ExceptHandler):
            line = module.line_start(statement.lineno)
            step = module.text[line + above.col_offset : module.start(statement)]
            if statement.lineno > above.lineno and _STEP.fullmatch(step):
                steps[module.start(statement)] = step
    return steps
