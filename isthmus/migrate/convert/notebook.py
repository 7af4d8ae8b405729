"""Convert the code cells of a notebook as one source."""

import bisect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from isthmus.migrate.convert.engine import Result
from isthmus.migrate.convert.rule import Change
from isthmus.migrate.source.files import problem
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.notebooks import code_cells, shown

_CELL = "# isthmus: cell {}"
_MARK = re.compile(r"^# isthmus: cell (\d+)\n", re.MULTILINE)
_SPACE = re.compile(r"[ \t\r\n]*")

Place = TypeVar("Place", Change, Finding)


class _Span(NamedTuple):
    """Position of a value in a JSON text."""

    start: int
    end: int


def convert_notebook(text: str, path: str, convert: Callable[[str, str], Result]) -> Result:
    """Convert the code cells of a notebook, preserving all other bytes.

    Args:
        text: text of the notebook, JSON.
        path: path for the log, where changes have the path ``name.ipynb#cell3`` and lines within the cell.
        convert: function that converts a source with a path.

    Returns:
        The result. Not a notebook, or a cell that does not parse, stays unchanged, with a finding.
    """
    try:
        cells = list(code_cells(json.loads(text)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _left(path, text, f"is not a notebook ({type(error).__name__})")
    broken = [_broken(path, cell.number, cell.error) for cell in cells if cell.error is not None]
    before = {cell.number: cell.text for cell in cells}
    marked = (f"{_CELL.format(cell.number)}\n{cell.code}\n" for cell in cells if cell.error is None)
    source = "".join(marked)
    result = _in_cells(convert(source, path), source)
    result = result._replace(findings=[*broken, *result.findings])
    if not result.changes:
        return result._replace(text=text)
    after = {number: new for number, new in _cells(result.text) if new != before[number]}
    return result._replace(text=_with_sources(text, after))


def _cells(source: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each cell of a source."""
    parts = _MARK.split(source)  # the text before the first cell, then number and text of each
    for number, text in zip(parts[1::2], parts[2::2], strict=True):
        yield int(number), shown(text.removesuffix("\n"))


def _in_cells(result: Result, source: str) -> Result:
    """Return the result with locations in the notebook."""
    marks = [source.count("\n", 0, mark.start()) + 1 for mark in _MARK.finditer(source)]  # their lines
    numbers = [mark[1] for mark in _MARK.finditer(source)]

    def placed(each: Place) -> Place:
        which = bisect.bisect_left(marks, each.line) - 1
        if which < 0:
            return each
        path, start = f"{each.path}#cell{numbers[which]}", marks[which]
        return each._replace(path=path, line=each.line - start, end_line=each.end_line - start)

    return result._replace(
        changes=[placed(each) for each in result.changes], findings=[placed(each) for each in result.findings]
    )


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
        text = text[: span.start] + _dumped(text, span, new) + text[span.end :]
    return text


def _dumped(text: str, span: _Span, source: str) -> str:
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


def _broken(path: str, number: int, error: SyntaxError) -> Finding:
    place = f"{path}#cell{number}"
    return problem(
        "IM001",
        place,
        f"does not parse: {error.msg}",
        "fix the syntax, then convert again",
        error.lineno or 0,
    )


def _left(path: str, text: str, why: str) -> Result:
    finding = problem("IM001", path, why, "convert it by hand, or save it with Jupyter first")
    return Result(text, [], [finding])
