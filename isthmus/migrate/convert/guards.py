"""Guards: an ``if`` around statements that apply only to some devices."""

import re
from collections.abc import Iterator, Sequence

from isthmus.migrate.source.edits import Edit

_WIDEST = 8  # an indentation of more is an alignment


def guards(text: str, edits: Sequence[Edit]) -> Iterator[Edit]:
    """Yield the edits that put statements under their guards; adjacent ones with the same guard share an ``if``.

    Args:
        text: of the module.
        edits: its edits; those with a guard are the statements.
    """
    wanted = sorted((edit for edit in edits if edit.guard), key=lambda edit: edit.start)
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = _unit(text)
    before: Edit | None = None
    for edit in wanted:
        line = text.rindex("\n", 0, edit.start) + 1 if "\n" in text[: edit.start] else 0
        indent = text[line : edit.start]
        step = "\t" if "\t" in indent else unit
        if before is not None and _adjoins(text, before, edit):
            yield Edit(line, line, step)
        else:
            head = f"if {edit.guard}:{newline}{indent}{step}"
            yield Edit(edit.start, edit.start, head, span=edit.start - edit.end - 1)
        for inner in re.finditer("\n", text[edit.start : edit.end]):
            offset = edit.start + inner.end()
            yield Edit(offset, offset, step)
        before = edit


def _adjoins(text: str, before: Edit, edit: Edit) -> bool:
    """Whether a statement is on the line after another one, in the same block, with the same guard."""
    between = text[before.end : edit.start]
    indent = text[: before.start].rpartition("\n")[2]
    return before.guard == edit.guard and between.count("\n") == 1 and between.rpartition("\n")[2] == indent


def _unit(text: str) -> str:
    """Return the indentation of the first block of a source; four spaces if it has none."""
    found = re.search(r":[ \t]*(?:#[^\n]*)?\r?\n( +)\S", text)
    return found[1] if found and len(found[1]) <= _WIDEST else " " * 4
