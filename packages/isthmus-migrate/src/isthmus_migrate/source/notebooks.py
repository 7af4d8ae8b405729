"""Code cells of a notebook as Python; IPython syntax becomes comments, line by line."""

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

# Cell magics whose cell is Python.
_PYTHON = re.compile(r"\s*(%%(?:time|timeit|capture|prun|memit|mprun)\b)")
# `%magic`, `!command` (a backslash continues it), `name?`.
_MAGIC = re.compile(r"^([ \t]*)(?:[!%?](?:[^\n]*\\\n)*[^\n]*|[\w.]+[ \t]*\?{1,2}[ \t]*)$", re.MULTILINE)
_ASSIGNED = re.compile(r"^([ \t]*[\w, ]+=)[ \t]*[!%](?:[^\n]*\\\n)*[^\n]*$", re.MULTILINE)
TOO_DEEP = "nested too deeply"  # for the parser, or to be followed
MARK = "# isthmus: magic "  # before IPython syntax that is a comment
_HIDDEN = re.compile(rf"^.*?{MARK}(.*)$", re.MULTILINE)


class Cell(NamedTuple):
    """A code cell.

    Attributes:
        number: position among all cells of the notebook, from 1.
        text: original text.
        code: Python with the same number of lines.
        error: its syntax error, or None.
    """

    number: int
    text: str
    code: str
    error: SyntaxError | None


def code_cells(document: Any) -> Iterator[Cell]:
    """Yield the Python cells of a notebook parsed from JSON, including invalid ones.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: not a notebook of format 4.
    """
    for number, cell in enumerate(document["cells"], 1):
        lines = cell["source"]
        if cell["cell_type"] != "code" or not isinstance(lines, (str, list)):
            continue
        text = "".join(lines)  # a string, or a list of lines
        if not text.lstrip().startswith("%%") or _PYTHON.match(text):
            yield Cell(number, text, *_to_plain_python(text))


def restore_text(code: str) -> str:
    """Restore the text of a cell from its code."""
    return _HIDDEN.sub(r"\1", code)


def parse(text: str) -> ast.Module:
    """Parse a module or cell; top-level ``await`` is allowed.

    Raises:
        SyntaxError: invalid syntax, or nested too deeply for the parser.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ignore warnings of invalid escapes in the user's code
        try:
            flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            return compile(text, "<source>", "exec", flags, dont_inherit=True)
        except (RecursionError, MemoryError):
            raise SyntaxError(TOO_DEEP) from None
        except ValueError as error:
            raise SyntaxError(str(error)) from None


def _to_plain_python(text: str) -> tuple[str, SyntaxError | None]:
    """Return a cell as plain Python, line by line, and its syntax error, if any."""
    if found := _PYTHON.match(text):  # a comment, so that nothing is inserted before it
        text = f"{text[: found.start(1)]}{MARK}{text[found.start(1) :]}"
    try:
        parse(text)
    except SyntaxError:
        text = _ASSIGNED.sub(lambda found: _comment(found, f"{found[1]} None"), text)
        text = _MAGIC.sub(lambda found: _comment(found, f"{found[1]}pass"), text)
        try:
            parse(text)
        except SyntaxError as error:
            return text, error
    return text, None


def _comment(found: re.Match[str], instead: str) -> str:
    """Return the replacement of a magic's lines."""
    if MARK in found[0]:
        return found[0]
    first, *rest = found[0].split("\n")
    indent = re.match(r"[ \t]*", first)
    return "\n".join(
        [f"{instead}  {MARK}{first}", *(f"{indent[0] if indent else ''}pass  {MARK}{line}" for line in rest)]
    )
