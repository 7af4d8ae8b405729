"""Edits of a text at positions: what is not edited keeps its bytes."""

import bisect
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")


class Edit(NamedTuple):
    """A replacement of text.

    Attributes:
        start: offset of the first replaced character.
        end: offset after the last one; equal to ``start`` for an insertion.
        text: the new text.
        span: for an insertion around an expression, the number of its characters, negative before it: the outer of
            two expressions that begin or end at the same place is then the outer one in the new text too.
        needs: what the new text uses: ``"device"`` for the device constant, ``"torch"``, or a module of the standard
            library to import.
        guard: for an insertion before a statement, the condition under which it is to run; adjacent statements with
            the same condition share an ``if``. ``end`` is then the end of the statement.
    """

    start: int
    end: int
    text: str
    span: int = 0
    needs: frozenset[str] = frozenset()
    guard: str = ""


def without_covered(edits: Iterable[Edit]) -> list[Edit]:
    """Return edits in text order, without those inside text that another edit replaces."""
    made: list[Edit] = []
    done = -1
    for edit in sorted(dict.fromkeys(edits), key=_order):
        if edit.guard:
            made.append(edit)
        elif edit.start >= done:
            made.append(edit)
            done = max(done, edit.end)
    return made


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with the edits applied, guards excepted."""
    parts: list[str] = []
    done = 0
    for edit in without_covered(edits):
        if not edit.guard:
            parts += [text[done : edit.start], edit.text]
            done = edit.end
    return "".join([*parts, text[done:]])


def _order(edit: Edit) -> tuple[int, int, int, int]:
    """Return the order of edits at one offset.

    Ends of expressions, inner first; then starts, outer first; then replacements, longest first.
    """
    is_replacement = edit.end > edit.start and not edit.guard
    kind = 2 if is_replacement else 0 if edit.span > 0 else 1
    return edit.start, kind, edit.span, -edit.end


class Lines:
    """Offsets of a text by line and column, as ``ast`` counts them.

    Args:
        text: a source with its original line ends.

    Attributes:
        lines: lines with their ends.
    """

    def __init__(self, text: str) -> None:
        self.lines: Sequence[str] = _LINE.findall(
            text
        )  # not str.splitlines: Python counts no other line ends
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))
        self._is_ascii = text.isascii()

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a place.

        Args:
            line: from 1.
            column: in bytes of UTF-8, from 0.
        """
        start = self._starts[line - 1]
        if self._is_ascii:
            return start + column
        return start + len(self.lines[line - 1].encode()[:column].decode(errors="ignore"))

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset, as :meth:`offset` takes them."""
        line = max(1, bisect.bisect_right(self._starts, offset, hi=len(self.lines)))
        before = self.lines[line - 1][: offset - self._starts[line - 1]]
        return line, len(before.encode())

    def start(self, line: int) -> int:
        """Return the offset of the first character of a line, counted from 1."""
        return self._starts[line - 1]
