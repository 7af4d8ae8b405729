"""Put the converted code cells of a notebook back into its JSON, preserving all other bytes."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from isthmus_migrate.source.notebooks import code_cells, restore_text
from isthmus_migrate.source.parse import CELL

_MARK = re.compile(rf"^{re.escape(CELL)}(\d+)\n", re.MULTILINE)
_SPACE = re.compile(r"[ \t\r\n]*")


class _Span(NamedTuple):
    """Position of a value in a JSON text."""

    start: int
    end: int


def with_code(text: str, code: str) -> str:
    """Return a notebook with new code in its cells.

    Args:
        text: text of a valid notebook, JSON.
        code: converted text of its cells, as parsed by source/parse.
    """
    before = {cell.number: cell.text for cell in code_cells(json.loads(text))}
    after = {number: new for number, new in _cells(code) if _is_changed(before[number], new)}
    return _with_sources(text, after)


def _is_changed(before: str, after: str) -> bool:
    return re.sub(r"\r\n?", "\n", before) != after


def _cells(code: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each cell."""
    parts = _MARK.split(code)  # the text before the first cell, then number and text of each
    for number, text in zip(parts[1::2], parts[2::2], strict=True):
        yield int(number), restore_text(text.removesuffix("\n"))


def _with_sources(text: str, sources: dict[int, str]) -> str:
    """Replace the sources of some cells in a notebook's text, preserving all other bytes.

    Args:
        text: text of a valid notebook.
        sources: new sources by cell number.
    """
    start = _SPACE.match(text).end()  # type: ignore[union-attr]
    cells = _elements(text, _members(text, start)["cells"].start)
    for number, new in sorted(sources.items(), reverse=True):
        span = _members(text, cells[number - 1].start)["source"]
        text = text[: span.start] + _dump_cell(text, span, new) + text[span.end :]
    return text


def _dump_cell(text: str, span: _Span, source: str) -> str:
    """Return a cell's new source as JSON in the old layout: a string, or a list that keeps the bytes of old lines."""
    if text[span.start] == '"':
        return json.dumps(source, ensure_ascii=text.isascii())
    old = _elements(text, span.start)
    known = {json.loads(text[each.start : each.end]): text[each.start : each.end] for each in old}
    lines = source.splitlines(keepends=True)
    new = [known.get(line) or json.dumps(line, ensure_ascii=text.isascii()) for line in lines]
    first = text[span.start + 1 : old[0].start]
    between = text[old[0].end : old[1].start] if len(old) > 1 else f",{first}"
    return f"[{first}{between.join(new)}{text[old[-1].end : span.end]}"


def _members(text: str, start: int) -> dict[str, _Span]:
    """Return the values of the JSON object that starts at an offset."""
    spans = _values(text, start, "}")
    names = (json.loads(text[each.start : each.end]) for each in spans[::2])
    return dict(zip(names, spans[1::2], strict=True))


def _elements(text: str, start: int) -> Sequence[_Span]:
    """Return the elements of the JSON array that starts at an offset."""
    return _values(text, start, "]")


def _values(text: str, start: int, end: str) -> list[_Span]:
    """Return names and values of a JSON object, or elements of an array."""
    decoder = json.JSONDecoder()
    found: list[_Span] = []
    place = start + 1
    while True:
        place = _SPACE.match(text, place).end()  # type: ignore[union-attr]
        if text[place] == end:
            return found
        if text[place] in ",:":
            place += 1
        else:
            found.append(_Span(place, decoder.raw_decode(text, place)[1]))
            place = found[-1].end
