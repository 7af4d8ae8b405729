"""The code cells of a notebook, as one source and back."""

from __future__ import annotations

import bisect
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from isthmus.migrate.convert.engine import Result
from isthmus.migrate.convert.rule import Change
from isthmus.migrate.findings import Finding
from isthmus.migrate.sources import problem

_CELL = "# isthmus: cell {}"
_MARK = re.compile(r"^# isthmus: cell (\d+)\n", re.MULTILINE)
_MAGIC = re.compile(r"^([ \t]*)([%!?].*)$", re.MULTILINE)
_HIDDEN = re.compile(r"^([ \t]*)pass  # isthmus: magic (.*)$", re.MULTILINE)


Place = TypeVar("Place", Change, Finding)


class _Layout(NamedTuple):
    """How the JSON of a notebook is laid out."""

    indent: int | str | None
    ascii_only: bool
    end: str

    def dump(self, document: Any) -> str:
        return json.dumps(document, indent=self.indent, ensure_ascii=self.ascii_only) + self.end


def convert_notebook(text: str, path: str, convert: Callable[[str, str], Result]) -> Result:
    """Convert the code cells of a notebook; the rest of its bytes stay.

    Args:
        text: of the notebook, JSON.
        path: for the log, where a change has the path ``name.ipynb#cell3`` and its line within the cell.
        convert: what converts a source with a path.

    Returns:
        The notebook as it was, with a finding, if it is no JSON or laid out in an unknown way.
    """
    try:
        document = json.loads(text)
        cells = {number: cell for number, cell in enumerate(document["cells"], 1) if _is_python(cell)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _left(text, path, f"is no notebook ({type(error).__name__})")
    source = "".join(_marked(number, cell) for number, cell in cells.items())
    result = _in_cells(convert(source, path), source)
    if not result.changes:
        return Result(text, [], result.findings)
    layout = _layout_of(text, document)
    if layout is None:
        return _left(text, path, "has a layout of JSON that would not be kept")
    for number, new in _cells(result.text):
        cell = cells[number]
        cell["source"] = new.splitlines(keepends=True) if isinstance(cell["source"], list) else new
    return result._replace(text=layout.dump(document))


def _is_python(cell: Any) -> bool:
    return cell["cell_type"] == "code" and not _text(cell).lstrip().startswith("%%")


def _text(cell: Any) -> str:
    return "".join(cell["source"])


def _marked(number: int, cell: Any) -> str:
    """A cell after a line that marks its start; magics, which are no Python, hidden."""
    hidden = _MAGIC.sub(r"\1pass  # isthmus: magic \2", _text(cell))
    return f"{_CELL.format(number)}\n{hidden}\n"


def _cells(source: str) -> Iterator[tuple[int, str]]:
    """The number and the text of each cell of a source."""
    parts = _MARK.split(source)  # what comes before the first, then number and text of each
    for number, text in zip(parts[1::2], parts[2::2], strict=True):
        yield int(number), _HIDDEN.sub(r"\1\2", text.removesuffix("\n"))


def _in_cells(result: Result, source: str) -> Result:
    """A result whose changes and findings are where they are in the notebook."""
    marks = [source.count("\n", 0, mark.start()) + 1 for mark in _MARK.finditer(source)]  # their lines
    numbers = [mark[1] for mark in _MARK.finditer(source)]

    def placed(each: Place) -> Place:
        which = bisect.bisect_left(marks, each.line) - 1
        if which < 0:
            return each
        path, start = f"{each.path}#cell{numbers[which]}", marks[which]
        return each._replace(path=path, line=each.line - start, end_line=each.end_line - start)

    return result._replace(
        changes=[placed(each) for each in result.changes],
        findings=[placed(each) for each in result.findings],
    )


def _layout_of(text: str, document: Any) -> _Layout | None:
    """The layout that gives back every byte."""
    end = text[len(text.rstrip()) :]
    for indent, ascii_only in itertools.product((1, 2, 4, None, "\t"), (False, True)):
        layout = _Layout(indent, ascii_only, end)
        try:
            if layout.dump(document) == text:
                return layout
        except RecursionError:
            return None
    return None


def _left(text: str, path: str, why: str) -> Result:
    finding = problem("IM001", path, why, "convert it by hand, or save it with Jupyter first")
    return Result(text, [], [finding])
